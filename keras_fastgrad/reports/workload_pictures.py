"""Pictures of one workload: speed, memory, step times."""

import math
from collections.abc import Mapping, Sequence

from keras_fastgrad.reports import numbers, palette, plots
from keras_fastgrad.reports.picture import Picture, picture
from keras_fastgrad.reports.ratios import RatioSummary
from keras_fastgrad.reports.records import Row


def ratio_picture(
    rows: Sequence[Row],
    found: Mapping[str, RatioSummary | None],
    variants: Sequence[str],
) -> Picture | None:
    """Bars of the ratios of one workload, with their spread.

    Args:
        rows: One merged row for each variant.
        found: The ratio of each variant.
        variants: All variants of the page, which decide the colours.

    Returns:
        The picture, or `None` where no variant has a ratio.
    """
    shown = [row for row in rows if row.variant != "keras"]
    if not any(found.get(row.variant) for row in shown):
        return None

    def bar(row: Row, colour: str) -> plots.Bar:
        ratio = found.get(row.variant)
        if ratio is None:
            text = "wrong" if row.verdict == "wrong" else "no ratio"
            return plots.Bar(row.variant, math.nan, text, colour)
        text = numbers.times(ratio.median)
        spread = (ratio.low, ratio.high) if ratio.turns > 1 else (None, None)
        return plots.Bar(row.variant, ratio.median, text, colour, *spread)

    def draw(theme: palette.Theme, colours: Mapping[str, str]) -> bytes:
        bars = [bar(row, colours[row.variant]) for row in shown]
        axis = "speed, \u00d7 stock Keras (dashed)"
        return plots.bar_chart(bars, axis, theme, baseline=1.0)

    said = (f"{row.variant} {bar(row, '').text}" for row in shown)
    return picture(
        draw,
        variants,
        "Speed against stock Keras: " + ", ".join(said) + ".",
        "Speed: stock Keras's step time over the variant's. Bar: median of "
        "the turns; whisker: the slowest and the fastest turn.",
    )


def memory_picture(
    rows: Sequence[Row], variants: Sequence[str]
) -> Picture | None:
    """Bars of the peak memory of one workload.

    Args:
        rows: One merged row for each variant.
        variants: All variants of the page, which decide the colours.

    Returns:
        The picture, or `None` where no memory was measured.
    """
    shown = [row for row in rows if math.isfinite(row.peak_mb)]
    if not shown:
        return None

    def text(row: Row) -> str:
        wrong = " (wrong)" if row.verdict == "wrong" else ""
        return f"{numbers.significant(row.peak_mb)}{wrong}"

    def draw(theme: palette.Theme, colours: Mapping[str, str]) -> bytes:
        bars = [
            plots.Bar(row.variant, row.peak_mb, text(row), colours[row.variant])
            for row in shown
        ]
        return plots.bar_chart(bars, "peak memory (MiB)", theme)

    said = (f"{row.variant} {text(row)}" for row in shown)
    return picture(
        draw,
        variants,
        "Peak memory in MiB: " + ", ".join(said) + ".",
        "Memory: the largest resident memory of the process, with Python "
        "and the libraries.",
    )


def steps_picture(
    rows: Sequence[Row], variants: Sequence[str]
) -> Picture | None:
    """Step time over the steps of one workload, with the switches marked.

    Args:
        rows: One merged row for each variant.
        variants: All variants of the page, which decide the colours.

    Returns:
        The picture, or `None` where no row has the times of its steps.
    """
    steps = {row.variant: _finite_pairs(row.step_ms) for row in rows}
    drawn = [row for row in rows if steps[row.variant]]
    if not drawn:
        return None
    switches = [
        (row.variant, *switch) for row in drawn for switch in row.switches
    ]

    def draw(theme: palette.Theme, colours: Mapping[str, str]) -> bytes:
        lines = []
        for row in drawn:
            x, y = zip(*steps[row.variant])
            lines.append(plots.Line(row.variant, x, y, colours[row.variant]))
        marks = [
            plots.Mark(float(step), number, colours[variant])
            for number, (variant, step, *_) in enumerate(switches, start=1)
        ]
        return plots.step_chart(lines, marks, theme)

    said = (
        f"{row.variant} {numbers.significant(row.step_ms_p50)}" for row in drawn
    )
    return picture(
        draw,
        variants,
        "Step time over the steps of one turn; medians in milliseconds: "
        + ", ".join(said)
        + ".",
        "Step time over one turn. A triangle is an execution slower than "
        "the axis shows."
        + (" A numbered line is a switch of strategy:" if switches else ""),
        tuple(
            f"{variant}, step {step}: {strategy} ({reason})"
            for variant, step, strategy, reason in switches
        ),
    )


def _finite_pairs(
    pairs: Sequence[Sequence[float]],
) -> list[tuple[float, float]]:
    return [(x, y) for x, y in pairs if math.isfinite(y)]
