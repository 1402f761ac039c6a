"""Pictures of what a step costs: by op, and by size."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from keras_fastgrad.reports import numbers, palette, plots
from keras_fastgrad.reports.picture import Picture, picture
from keras_fastgrad.reports.records import ProfileEntry, ScalePoint

_MOST_OPS = 8


def profile_picture(
    entries: Sequence[ProfileEntry], variants: Sequence[str]
) -> Picture:
    """Bars of the self time of each kind of op in a step of one workload.

    Args:
        entries: Those of one workload; the ops that take longest are drawn.
        variants: All variants of the page, which decide the colours.

    Returns:
        The picture.
    """
    spent: dict[str, dict[str, float]] = {}
    for entry in entries:
        spent.setdefault(entry.op, {})[entry.variant] = entry.self_ms
    ops = sorted(spent, key=lambda op: -max(spent[op].values()))
    names = list(dict.fromkeys(entry.variant for entry in entries))
    figures = [(op, spent[op]) for op in ops[:_MOST_OPS]]
    if ops[_MOST_OPS:]:
        rest = {
            name: sum(spent[op].get(name, 0.0) for op in ops[_MOST_OPS:])
            for name in names
        }
        figures.append((f"{len(ops) - _MOST_OPS} other ops", rest))

    def draw(theme: palette.Theme, colours: Mapping[str, str]) -> bytes:
        bars = []
        for op, times in figures:
            for place, name in enumerate(names):
                value = times.get(name, 0.0)
                text = f"{numbers.significant(value)} {name}"
                label = "" if place else op
                bars.append(plots.Bar(label, value, text, colours[name]))
        return plots.bar_chart(bars, "self time (ms a step)", theme)

    totals = [
        (name, sum(times.get(name, 0.0) for times in spent.values()))
        for name in names
    ]
    return picture(
        draw,
        variants,
        "Self time by kind of op; sums in milliseconds a step: "
        + ", ".join(f"{name} {numbers.significant(ms)}" for name, ms in totals)
        + ". The table has each op.",
        "Where the step's time goes: self time of each kind of op, summed "
        "over threads.",
    )


def scale_pictures(
    points: Sequence[ScalePoint], variants: Sequence[str]
) -> list[Picture]:
    """Step time and memory against one dimension of one workload.

    Args:
        points: Those of one workload and one dimension.
        variants: All variants of the page, which decide the colours.

    Returns:
        The pictures, none where no cost was measured.
    """
    costs: list[tuple[str, Callable[[ScalePoint], float]]] = [
        ("step time (ms)", lambda point: point.step_ms_p50),
        ("peak memory (MiB)", lambda point: point.peak_mb),
    ]
    pictures = []
    for name, cost in costs:
        curves = _curves(points, cost)
        if curves:
            pictures.append(
                _scale_picture(name, points[0].dimension, curves, variants)
            )
    return pictures


def _scale_picture(
    cost: str,
    dimension: str,
    curves: Mapping[str, Mapping[int, list[float]]],
    variants: Sequence[str],
) -> Picture:
    def draw(theme: palette.Theme, colours: Mapping[str, str]) -> bytes:
        lines = [
            plots.Line(
                variant,
                list(curve),
                [statistics.median(values) for values in curve.values()],
                colours[variant],
                [min(values) for values in curve.values()],
                [max(values) for values in curve.values()],
            )
            for variant, curve in curves.items()
        ]
        return plots.size_chart(lines, dimension, cost, theme)

    said = []
    for variant, curve in curves.items():
        first, last = next(iter(curve)), list(curve)[-1]
        ends = [
            f"{numbers.significant(statistics.median(curve[size]))} at {size:,}"
            for size in dict.fromkeys((first, last))
        ]
        said.append(f"{variant} " + " and ".join(ends))
    return picture(
        draw,
        variants,
        f"{cost[0].upper()}{cost[1:]} against {dimension}: "
        + "; ".join(said)
        + ".",
        f"{cost[0].upper()}{cost[1:]} against {dimension}; both axes are "
        "logarithmic. Line: median of the turns; band: all turns.",
    )


def _curves(
    points: Sequence[ScalePoint], cost: Callable[[ScalePoint], float]
) -> dict[str, dict[int, list[float]]]:
    curves: dict[str, dict[int, list[float]]] = {}
    for point in sorted(points, key=lambda point: point.size):
        # A logarithmic axis has no place for zero.
        if math.isfinite(cost(point)) and cost(point) > 0 < point.size:
            curve = curves.setdefault(point.variant, {})
            curve.setdefault(point.size, []).append(cost(point))
    return curves
