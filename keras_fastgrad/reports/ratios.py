"""How much faster, how much smaller: the rows of a run against a reference.

A machine drifts, so a ratio is taken within one turn and only then summed up
over the turns.
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from keras_fastgrad.reports.records import Record, Row, Run

Key: TypeAlias = tuple[str, str]

# The worst word on any turn is the word on the variant.
_VERDICTS = ("wrong", "unchecked", "right", "reference")


@dataclasses.dataclass(frozen=True)
class RatioSummary:
    """Ratios of the turns of one variant, above 1 where it is the better.

    Args:
        median: The middle ratio.
        low: The smallest ratio of a turn.
        high: The largest ratio of a turn.
        turns: How many turns had both the variant and the reference.
    """

    median: float
    low: float
    high: float
    turns: int


def ratios(
    rows: Iterable[Row], reference: str = "keras"
) -> dict[Key, RatioSummary | None]:
    """Says how many times as fast as the reference each variant steps.

    Args:
        rows: Rows of any number of workloads, variants and turns.
        reference: The variant to compare with. Defaults to `"keras"`.

    Returns:
        For each pair of workload and variant, the reference's median step
        time over the variant's, turn by turn. `None` where there is nothing
        to say: the variant is wrong on some turn, or has no turn with a time
        of its own and one of the reference.
    """
    return _ratios(rows, reference, lambda row: row.step_ms_p50)


def memory_ratios(
    rows: Iterable[Row], reference: str = "keras"
) -> dict[Key, RatioSummary | None]:
    """Says how many times as much memory as each variant the reference takes.

    Args:
        rows: Rows of any number of workloads, variants and turns.
        reference: The variant to compare with. Defaults to `"keras"`.

    Returns:
        As `ratios`, with peak memory in place of step time.
    """
    return _ratios(rows, reference, lambda row: row.peak_mb)


def medians(rows: Iterable[Row]) -> list[Row]:
    """Merges the turns of each variant of each workload into one row.

    Args:
        rows: Rows of any number of workloads, variants and turns.

    Returns:
        One row for each pair of workload and variant, in the order in which
        they first appear: the median of the medians, the lowest 20th and the
        highest 80th percentile, the highest peak memory, the largest weight
        difference, the worst verdict. `turn` is the number of turns merged;
        `step_ms` and `switches` are those of the last turn that has any.
    """
    return [_merged(group) for group in _grouped(rows).values()]


def with_distinct_turns(records: Iterable[Record]) -> list[Row]:
    """The rows of a file that several runs wrote, their turns kept apart.

    Each run counts its turns from the start. Left so, a ratio would pair the
    turns of different runs.

    Args:
        records: All records, in the order of the file.

    Returns:
        The rows, with the turns of each later run numbered on.
    """
    rows: list[Row] = []
    first = following = 0
    for record in records:
        if isinstance(record, Run):
            first = following
        elif isinstance(record, Row):
            turn = first + record.turn
            following = max(following, turn + 1)
            rows.append(dataclasses.replace(record, turn=turn))
    return rows


def _ratios(
    rows: Iterable[Row], reference: str, cost: Callable[[Row], float]
) -> dict[Key, RatioSummary | None]:
    groups = _grouped(rows)
    return {
        (workload, variant): _summary(
            groups.get((workload, reference), []), group, cost
        )
        for (workload, variant), group in groups.items()
    }


def _summary(
    reference: Sequence[Row],
    variant: Sequence[Row],
    cost: Callable[[Row], float],
) -> RatioSummary | None:
    if any(row.verdict == "wrong" for row in variant):
        return None
    before, after = _by_turn(reference, cost), _by_turn(variant, cost)
    found = [before[turn] / after[turn] for turn in after if turn in before]
    if not found:
        return None
    return RatioSummary(
        statistics.median(found), min(found), max(found), len(found)
    )


def _by_turn(
    rows: Sequence[Row], cost: Callable[[Row], float]
) -> dict[int, float]:
    # A run that timed nothing writes NaN.
    return {
        row.turn: cost(row)
        for row in rows
        if math.isfinite(cost(row)) and cost(row) > 0
    }


def _grouped(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.variant), []).append(row)
    return groups


def _merged(rows: Sequence[Row]) -> Row:
    drawn = [row for row in rows if row.step_ms] or rows[-1:]
    return dataclasses.replace(
        rows[-1],
        turn=len(rows),
        step_ms_p20=_of(min, [row.step_ms_p20 for row in rows]),
        step_ms_p50=_of(statistics.median, [row.step_ms_p50 for row in rows]),
        step_ms_p80=_of(max, [row.step_ms_p80 for row in rows]),
        samples_per_second=_of(
            statistics.median, [row.samples_per_second for row in rows]
        ),
        compile_seconds=_of(
            statistics.median, [row.compile_seconds for row in rows]
        ),
        peak_mb=_of(max, [row.peak_mb for row in rows]),
        final_loss=_loss([row.final_loss for row in rows]),
        max_weight_difference=_largest(
            [row.max_weight_difference for row in rows]
        ),
        verdict=min((row.verdict for row in rows), key=_rank),
        note="; ".join(dict.fromkeys(row.note for row in rows if row.note)),
        step_ms=drawn[-1].step_ms,
        switches=drawn[-1].switches,
    )


def _of(
    merge: Callable[[list[float]], float], values: Sequence[float]
) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return merge(finite) if finite else math.nan


def _loss(values: Sequence[float]) -> float:
    # One diverged turn must show, so it is not averaged away.
    broken = itertools.filterfalse(math.isfinite, values)
    return next(broken, statistics.median(values))


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    broken = itertools.filterfalse(math.isfinite, known)
    return next(broken, max(known, default=None))


def _rank(verdict: str) -> int:
    return _VERDICTS.index(verdict) if verdict in _VERDICTS else 1
