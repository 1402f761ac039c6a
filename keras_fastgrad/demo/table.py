"""What the demo shows at its end."""

import math
from statistics import median

from rich.table import Table

from keras_fastgrad.demo.models import TWIN_OFFSET
from keras_fastgrad.demo.training import Comparison, Run

# A quiet stretch of a shared machine gave 1.25, busy ones 1.7 to 5.
_STEADY = 1.3


def comparison_table(comparison: Comparison, length: int) -> Table:
    """Both runs side by side.

    Args:
        comparison: What was measured.
        length: Characters a sample.

    Returns:
        A rich table that fits 80 columns.
    """
    stock, fast = comparison.stock, comparison.fast
    ratios = comparison.ratios
    table = Table(
        title="The same training, twice",
        title_justify="left",
        caption=(
            "Ratio: stock Keras's step time over keras_fastgrad's in the "
            "same turn;\n"
            f"the median of {len(ratios)} turns, and the lowest to the "
            "highest."
        ),
        caption_justify="left",
    )
    table.add_column("")
    table.add_column("stock Keras", justify="right")
    table.add_column("keras_fastgrad", justify="right")
    table.add_column("")
    table.add_row(
        "step time (p50)",
        *(f"{median(run.step_times_ms):.2f} ms" for run in (stock, fast)),
        f"ratio [bold]{median(ratios):.2f}[/bold] "
        f"({min(ratios):.2f} to {max(ratios):.2f})",
    )
    table.add_row(
        "samples/s",
        *(f"{median(run.samples_per_second):,.0f}" for run in (stock, fast)),
        f"of {length} characters",
    )
    table.add_row(
        "first call",
        *(f"{run.compile_seconds:.1f} s" for run in (stock, fast)),
        "compiles; in no other row",
    )
    _add_loss(table, "final loss", stock.loss, fast.loss)
    _add_loss(
        table, "validation loss", stock.validation_loss, fast.validation_loss
    )
    table.add_row(
        "weight difference",
        "",
        f"{comparison.weight_difference:.1e}",
        "the largest; see below",
    )
    return table


def _add_loss(table: Table, name: str, stock: float, fast: float) -> None:
    table.add_row(
        name,
        f"{stock:.4f}",
        f"{fast:.4f}",
        f"difference {abs(stock - fast):.1e}",
    )


def steadiness(comparison: Comparison) -> str:
    """Warns of a ratio that varied; empty where it held still."""
    ratios = comparison.ratios
    if max(ratios) <= _STEADY * min(ratios):
        return ""
    return (
        "The ratio varied from turn to turn, as it does where other programs "
        "run. Take it as rough, or run the demo again on an idle machine."
    )


def rounding(comparison: Comparison) -> str:
    """Says in a sentence what the weight difference is worth."""
    return (
        "Are the weights equal? To float32 rounding, which training makes "
        f"grow: they end {comparison.weight_difference:.1e} apart at most. "
        "The control, a second keras_fastgrad model whose weights began "
        f"{TWIN_OFFSET:.0e} of their size off, ends "
        f"{comparison.twin_difference:.1e} away from the first."
    )


def learned(run: Run, frequency_loss: float, characters: int) -> str:
    """Says in a sentence what the validation loss is worth.

    Args:
        run: The run whose loss it is.
        frequency_loss: The loss of a guess by letter frequencies.
        characters: Size of the alphabet.

    Returns:
        The losses as perplexities: among how many equally likely characters
        a guess with that loss would have to choose.
    """
    return (
        "Did it learn? Before each character of text it never saw, the model "
        f"is as unsure as among {math.exp(run.validation_loss):.1f} equally "
        "likely ones (the perplexity). Letter frequencies alone leave "
        f"{math.exp(frequency_loss):.1f}, pure chance {characters}."
    )
