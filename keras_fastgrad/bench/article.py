"""The article's table: its figures, and the same measured here."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keras_fastgrad.bench.article_claims import CLAIMS, Claim, Side, sides
from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.launch import Launch
from keras_fastgrad.bench.runner import Hooks, few_steps
from keras_fastgrad.bench.workloads import find
from keras_fastgrad.reports.records import (
    ArticleRow,
    Missing,
    Record,
    Row,
    of_kind,
)

Times: TypeAlias = dict[tuple[Side, int], float]


def process_count(turns: int) -> int:
    """How many processes `run` starts."""
    return len(sides()) * turns


def run(steps: int | None, turns: int, launch: Launch, hooks: Hooks) -> None:
    """Times all sides in turns and records a row for each claim.

    Rows are recorded in Ctrl-C's case too, as far as their sides were timed.

    Args:
        steps: Steps to time; `None` for few.
        turns: How often each side is timed.
        launch: Runs one job.
        hooks: Where results and progress go.
    """
    times: Times = {}
    failures: dict[Side, str] = {}
    try:
        for side, turn, result in _timed(steps, turns, launch, hooks):
            if isinstance(result, Missing):
                failures[side] = result.reason
            else:
                times[side, turn] = result.step_ms_p50
    finally:
        for claim in CLAIMS:
            record = answered(claim, times, failures)
            if record is not None:
                hooks.record(record)


def _timed(
    steps: int | None, turns: int, launch: Launch, hooks: Hooks
) -> Iterator[tuple[Side, int, Row | Missing]]:
    failed: set[Side] = set()
    for turn in range(1, turns + 1):
        for side in sides():
            if side in failed:
                continue
            workload = find(side.workload)
            hooks.began(f"{side.workload}, {side.engine}: {side.setting}")
            result = launch(
                Job(
                    side.workload,
                    side.engine,
                    side.engine,
                    side.setting,
                    steps=steps or max(20, few_steps(workload)),
                    warmup=3,
                    turn=turn,
                )
            )
            hooks.advanced()
            if isinstance(result, Missing):
                failed.add(side)
            yield side, turn, result


def answered(
    claim: Claim, times: Times, failures: dict[Side, str]
) -> ArticleRow | Missing | None:
    """Our figures for a claim.

    Args:
        claim: The claim.
        times: Milliseconds a step by side and turn.
        failures: Sides that could not be timed, and why.

    Returns:
        A row, a `Missing` where a side failed, or `None` where no turn has
        all sides. Shares are taken within a turn, then the median.
    """
    for side in claim.sides:
        if side in failures:
            return Missing("article", claim.name, failures[side])
    turns = [
        turn
        for side, turn in times
        if side == claim.before
        and all((other, turn) in times for other in claim.sides)
    ]
    if not turns:
        return None

    def middle(figure: Callable[[int], float]) -> float:
        return median(map(figure, turns))

    def of(side: Side) -> Callable[[int], float]:
        if claim.computing is None:
            return lambda turn: times[side, turn]
        base = claim.computing
        return lambda turn: 100 * times[base, turn] / times[side, turn]

    return ArticleRow(
        claim.name,
        claim.unit,
        *claim.theirs,
        ours_before=middle(of(claim.before)),
        ours_after=middle(of(claim.after)),
        ours_saved=middle(
            lambda t: 1 - times[claim.after, t] / times[claim.before, t]
        ),
        note=claim.note,
    )


def show(records: Sequence[Record], console: Console) -> None:
    """Prints theirs beside ours, where there are such records."""
    rows = of_kind(records, ArticleRow)
    if not rows:
        return
    table = Table(title="the article's figures, and ours on this machine")
    table.add_column("what")
    table.add_column("unit")
    for heading in ("theirs", "saved", "ours", "saved"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for row in rows:
        table.add_row(
            escape(row.name),
            row.unit,
            _pair(row.theirs_before, row.theirs_after),
            _share(row.theirs_saved),
            _pair(row.ours_before, row.ours_after),
            _share(row.ours_saved),
            escape(row.note),
        )
    console.print(table)


def _pair(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "-"
    return f"{before:.3g} → {after:.3g}"


def _share(saved: float | None) -> str:
    return "-" if saved is None else f"{100 * saved:.0f} %"
