"""Says in a few sentences what a run found."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from keras_fastgrad.reports import numbers
from keras_fastgrad.reports.ratios import Key, RatioSummary
from keras_fastgrad.reports.records import Row

# Everything else a run measures is a strategy of this package.
_NOT_OURS = ("keras", "keras-best", "tf-keras", "torch")


@dataclasses.dataclass(frozen=True)
class _Result:
    workload: str
    variant: str
    ratio: RatioSummary

    def __str__(self) -> str:
        low, high = self.ratio.low, self.ratio.high
        spread = f" ({numbers.between(low, high)})"
        times = numbers.times(self.ratio.median)
        return (
            f"{self.workload} {times}{spread if self.ratio.turns > 1 else ''} "
            f"by {self.variant}"
        )


def summary(
    rows: Sequence[Row], found: Mapping[Key, RatioSummary | None]
) -> list[str]:
    """The verdict on a run.

    Args:
        rows: One merged row for each variant of each workload.
        found: Their ratios.

    Returns:
        Sentences, none of which claims what was not measured.
    """
    if not rows:
        return ["No training row has been measured in this run."]
    ours = _fastest(
        (row for row in rows if _is_ours(row) and row.verdict == "right"), found
    )
    others = _fastest((row for row in rows if not _is_ours(row)), found)
    ahead = [
        result
        for workload, result in others.items()
        if workload in ours
        and result.ratio.median > ours[workload].ratio.median
    ]
    said = []
    if ours:
        said.append(
            "Speed against stock Keras, within the declared tolerance: "
            f"{'; '.join(map(str, ours.values()))}."
        )
    else:
        said.append("No strategy of FastGrad has both a right row and a ratio.")
    if ahead:
        said.append(f"Faster than that: {'; '.join(map(str, ahead))}.")
    return said + _verdicts(rows)


def _verdicts(rows: Sequence[Row]) -> list[str]:
    compared = [row for row in rows if row.verdict in ("right", "wrong")]
    wrong: dict[str, list[str]] = {}
    for row in compared:
        if row.verdict == "wrong":
            wrong.setdefault(row.variant, []).append(row.workload)
    unchecked = dict.fromkeys(
        row.variant for row in rows if row.verdict == "unchecked"
    )
    said = []
    if wrong:
        listed = (f"{name} on {', '.join(on)}" for name, on in wrong.items())
        said.append(f"Wrong, so without a ratio: {'; '.join(listed)}.")
    elif compared:
        said.append("No variant that was compared with stock Keras is wrong.")
    if unchecked:
        said.append(f"Results not compared: {', '.join(unchecked)}.")
    return said


def _fastest(
    rows: Iterable[Row], found: Mapping[Key, RatioSummary | None]
) -> dict[str, _Result]:
    best: dict[str, _Result] = {}
    for row in rows:
        ratio = found.get((row.workload, row.variant))
        if ratio is None:
            continue
        rival = best.get(row.workload)
        if rival is None or ratio.median > rival.ratio.median:
            best[row.workload] = _Result(row.workload, row.variant, ratio)
    return best


def _is_ours(row: Row) -> bool:
    return row.variant not in _NOT_OURS
