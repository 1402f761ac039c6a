"""The tables of a bench run, for a terminal."""

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keras_fastgrad.bench.workloads import WORKLOADS
from keras_fastgrad.reports.ratios import RatioSummary, medians, ratios
from keras_fastgrad.reports.records import Missing, Record, Row, Run, of_kind

_VERDICT_STYLES = {"wrong": "bold red", "right": "green"}


def show(records: Sequence[Record], console: Console) -> None:
    """Prints a table for each workload, and what could not be measured.

    Args:
        records: The records of one run, however far it came.
        console: Where to print.
    """
    rows = of_kind(records, Row)
    missing = of_kind(records, Missing)
    names = [record.workload for record in [*rows, *missing]]
    for name in dict.fromkeys(names):
        mine = [row for row in rows if row.workload == name]
        if mine:
            console.print(of_workload(name, mine))
            for line in what_ran(mine):
                console.print(escape(line), highlight=False)
            console.print()
        for absent in missing:
            if absent.workload == name:
                console.print(
                    f"[yellow]{escape(absent.variant)}[/] was not measured "
                    f"on {escape(name)}: {escape(absent.reason)}"
                )
    for run in of_kind(records, Run):
        console.print(origin(run), style="dim")


def origin(run: Run) -> str:
    """The line that says where the figures come from."""
    versions = ", ".join(f"{k} {v}" for k, v in run.versions.items())
    return escape(
        f"{run.processor}, {run.cores} cores, {run.memory_gb:g} GiB; "
        f"{versions}; {run.date}"
    )


def of_workload(name: str, rows: Sequence[Row]) -> Table:
    """The table of one workload, for 80 columns; turns are summed up.

    Args:
        name: The workload's name.
        rows: Its rows, of all variants and turns.
    """
    what = WORKLOADS[name].what if name in WORKLOADS else ""
    table = Table(
        title=f"[bold]{escape(name)}[/]: {escape(what)}",
        caption="p20, p50, p80: milliseconds a training step",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("variant", no_wrap=True)
    for heading in (
        "p20",
        "p50",
        "p80",
        "times keras",
        "loss",
        "differs",
        "verdict",
    ):
        table.add_column(heading, justify="right")
    against_keras = ratios(rows)
    for row in medians(rows):
        style = _VERDICT_STYLES.get(row.verdict, "")
        verdict = f"[{style}]{row.verdict}[/]" if style else row.verdict
        table.add_row(
            escape(row.variant),
            *map(_short, (row.step_ms_p20, row.step_ms_p50, row.step_ms_p80)),
            _ratio(row, against_keras.get((row.workload, row.variant))),
            f"{row.final_loss:.4g}",
            _difference(row.max_weight_difference),
            verdict,
        )
    return table


def what_ran(rows: Sequence[Row]) -> list[str]:
    """A line for each variant of a workload: what its row stands for.

    Args:
        rows: The rows of one workload.
    """
    return [
        f"{row.variant}: {row.strategy}; {row.samples_per_second:,.0f} "
        f"samples/s, compiles in {row.compile_seconds:.1f} s, "
        f"{row.peak_mb:,.0f} MiB at most"
        + (f" ({row.note})" if row.note else "")
        for row in medians(rows)
    ]


def _short(milliseconds: float) -> str:
    return (
        f"{milliseconds:.3g}" if milliseconds < 100 else (f"{milliseconds:.0f}")
    )


def _difference(value: float | None) -> str:
    if not value:
        return "-" if value is None else "0"
    return f"{value:.1e}" if math.isfinite(value) else "not finite"


def _ratio(row: Row, summary: RatioSummary | None) -> str:
    # A wrong training has no speed.
    if row.verdict == "wrong":
        return "wrong"
    if summary is None:
        return "-"
    spread = f" ({summary.low:.1f}-{summary.high:.1f})"
    return f"{summary.median:.2f}" + (spread if summary.turns > 1 else "")
