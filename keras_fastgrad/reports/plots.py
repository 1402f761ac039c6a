"""Draws bars and lines as SVG, narrow enough to be read on a phone.

Every function takes plain values and gives the bytes of one picture.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_fastgrad.reports import numbers
from keras_fastgrad.reports.canvas import TEXT_SIZE, canvas, plain, svg, write
from keras_fastgrad.reports.palette import Theme

_MOST_POINTS = 400


@dataclasses.dataclass(frozen=True)
class Bar:
    """One horizontal bar with its label above and its value beside it.

    Args:
        label: What the bar stands for. Empty leaves the line above it out.
        value: Its length. NaN draws no bar, only `text`.
        text: The value in words.
        colour: Fill.
        low: Lower end of the spread, `None` for no spread.
        high: Upper end of the spread.
    """

    label: str
    value: float
    text: str
    colour: str
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a chart, with a band from `low` to `high` where given."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclasses.dataclass(frozen=True)
class Mark:
    """A numbered vertical line, for something that happened at `x`."""

    x: float
    number: int
    colour: str


def bar_chart(
    bars: Sequence[Bar],
    axis: str,
    theme: Theme,
    baseline: float | None = None,
) -> bytes:
    """Draws horizontal bars.

    Args:
        bars: From top to bottom.
        axis: What the length is, with its unit.
        theme: Colours.
        baseline: Draw a dashed line here. Defaults to none.

    Returns:
        The picture as SVG.
    """
    places, bottom = _bar_places(bars)
    figure, axes = canvas(0.45 * bottom + 0.55, theme)
    ends = [bar.value if bar.high is None else bar.high for bar in bars]
    longest = max((end for end in ends if math.isfinite(end)), default=1.0)
    right = 1.3 * max(longest, baseline or 0.0) or 1.0
    axes.set(xlim=(0, right), ylim=(bottom, 0), yticks=[], xlabel=axis)
    if baseline is not None:
        axes.axvline(baseline, color=theme.ink, lw=0.8, ls=(0, (4, 3)))
    for bar, place, end in zip(bars, places, ends):
        write(axes, 0.012 * right, place - 0.24, bar.label, va="bottom")
        tip = end if math.isfinite(end) else 0.0
        if math.isfinite(bar.value):
            axes.barh(place, bar.value, height=0.42, color=bar.colour)
        if bar.low is not None and bar.high is not None:
            _whisker(axes, bar.low, bar.high, place, theme)
        write(axes, tip + 0.015 * right, place, bar.text, va="center")
    axes.grid(axis="x", color=theme.faint, lw=0.5)
    return svg(figure)


def step_chart(
    lines: Sequence[Line], marks: Sequence[Mark], theme: Theme
) -> bytes:
    """Draws step time over the steps of a run.

    The few slowest executions, such as one that compiles, would flatten the
    rest: those beyond the axis are drawn as triangles at its upper edge.

    Args:
        lines: Milliseconds a step against the step's number.
        marks: Switches of strategy.
        theme: Colours.

    Returns:
        The picture as SVG.
    """
    figure, axes = canvas(2.3 + _legend_height(lines), theme)
    slow = max(float(np.percentile(line.y, 95)) for line in lines)
    top = 1.25 * slow or 1.0
    handles: list[Any] = []
    for line in lines:
        x, y = np.asarray(line.x), np.asarray(line.y)
        beyond = x[y > top]
        handles += axes.plot(*_thinned(x, y), color=line.colour, lw=1.2)
        edge = [top] * len(beyond)
        axes.plot(beyond, edge, "^", color=line.colour, ms=5, clip_on=False)
    for mark in marks:
        axes.axvline(mark.x, color=mark.colour, lw=1, ls=(0, (4, 3)))
        axes.annotate(
            str(mark.number),
            (mark.x, 0.06 * top),
            color=mark.colour,
            ha="center",
            va="center",
            bbox={"boxstyle": "circle", "fc": "none", "ec": mark.colour},
            xytext=(11, 0),
            textcoords="offset points",
        )
    axes.set(xlabel="training step", ylabel="step time (ms)", ylim=(0, top))
    axes.margins(x=0.01)
    axes.grid(axis="y", color=theme.faint, lw=0.5)
    _legend(figure, handles, lines, theme)
    return svg(figure)


def size_chart(
    lines: Sequence[Line], axis: str, cost: str, theme: Theme
) -> bytes:
    """Draws cost against size, both on logarithmic axes.

    Args:
        lines: Cost against size, all positive.
        axis: What the size is.
        cost: What the cost is, with its unit.
        theme: Colours.

    Returns:
        The picture as SVG.
    """
    from matplotlib import ticker

    figure, axes = canvas(2.5 + _legend_height(lines), theme)
    handles: list[Any] = []
    for marker, line in zip("osD^vPX*" * len(lines), lines):
        style = {"color": line.colour, "marker": marker, "ms": 4.5, "lw": 1.4}
        handles += axes.plot(line.x, line.y, **style)
        if line.low:
            axes.fill_between(
                line.x, line.low, line.high, color=line.colour, alpha=0.2, lw=0
            )
    sizes = sorted({x for line in lines for x in line.x})
    values = [y for line in lines for y in (*line.y, *line.low, *line.high)]
    bottom, top = _round_number(min(values), -1), _round_number(max(values), 1)
    axes.set(xscale="log", yscale="log", xlabel=plain(axis), ylabel=cost)
    axes.set_ylim(0.9 * bottom, 1.1 * top)
    axes.set_xticks(sizes[:: 1 + len(sizes) // 8])
    subs = (1.0,) if top >= 500 * bottom else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=12))
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(lambda value, _: numbers.compact(value))
        side.set_minor_locator(ticker.NullLocator())
    axes.grid(color=theme.faint, lw=0.5)
    _legend(figure, handles, lines, theme)
    return svg(figure)


def _whisker(
    axes: Any, low: float, high: float, place: float, theme: Theme
) -> None:
    from matplotlib import patheffects

    # The rim keeps it in sight on a bar of nearly its own colour.
    rim = patheffects.withStroke(linewidth=2.8, foreground=theme.ground)
    axes.plot(
        [low, low, low, high, high, high],
        [place + dy for dy in (-0.1, 0.1, 0.0, 0.0, -0.1, 0.1)],
        color=theme.ink,
        lw=1.1,
        solid_joinstyle="miter",
        path_effects=[rim],
    )


def _bar_places(bars: Sequence[Bar]) -> tuple[list[float], float]:
    # A bar without a label belongs to the one above it and stands close.
    places: list[float] = []
    edge = 0.0
    for bar in bars:
        middle = edge + (0.71 if bar.label else 0.24)
        places.append(middle)
        edge = middle + 0.21
    return places, edge + 0.17


def _legend_columns(lines: Sequence[Line]) -> int:
    return 1 if any(len(plain(line.label)) > 17 for line in lines) else 2


def _legend_height(lines: Sequence[Line]) -> float:
    return 0.19 * math.ceil(len(lines) / _legend_columns(lines))


def _legend(
    figure: Any, handles: list[Any], lines: Sequence[Line], theme: Theme
) -> None:
    # matplotlib leaves out a label that begins with an underscore.
    labels = [f" {plain(line.label)}" for line in lines]
    legend = figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=_legend_columns(lines),
        frameon=False,
        fontsize=TEXT_SIZE,
        labelcolor=theme.ink,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _thinned(x: Any, y: Any) -> tuple[Any, Any]:
    parts = min(len(x), _MOST_POINTS)
    return (
        [float(np.mean(part)) for part in np.array_split(x, parts)],
        [float(np.median(part)) for part in np.array_split(y, parts)],
    )


def _round_number(value: float, direction: int) -> float:
    """The next of 1, 2, 5 times a power of ten, below or above `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [factor * power for factor in (1.0, 2.0, 5.0, 10.0)]
    if direction < 0:
        return max(step for step in steps if step <= value * 1.000001)
    return min(step for step in steps if step >= value * 0.999999)
