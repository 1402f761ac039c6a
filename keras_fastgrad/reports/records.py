"""What a bench run writes: one JSON object a line, each of one kind.

The file is the run's only output; tables and pages are made from it. Lines
are appended as they are measured, so an interrupted run keeps what it has.
"""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias


@dataclasses.dataclass(frozen=True)
class Run:
    """Where, when and with what the rows after it were measured."""

    command: str
    date: str
    processor: str
    cores: int
    memory_gb: float
    versions: dict[str, str]
    kind: str = "run"


@dataclasses.dataclass(frozen=True)
class Row:
    """One variant of one workload, measured in one turn by one process.

    Times are milliseconds a training step, `compile_seconds` seconds,
    `peak_mb` the process's largest resident memory in MiB. `step_ms` has a
    `[step, milliseconds]` pair for each execution, for the picture of a run;
    `switches` a `[step, strategy, reason]` for each change of strategy.
    `tolerance` is the allowed difference of the final loss, relative to stock
    Keras's. `verdict` is `"reference"`, `"right"`, `"wrong"` or `"unchecked"`.
    """

    workload: str
    variant: str
    turn: int
    strategy: str
    steps: int
    step_ms_p20: float
    step_ms_p50: float
    step_ms_p80: float
    samples_per_second: float
    compile_seconds: float
    peak_mb: float
    final_loss: float
    command: str
    max_weight_difference: float | None = None
    tolerance: float | None = None
    verdict: str = "unchecked"
    note: str = ""
    step_ms: list[list[float]] = dataclasses.field(default_factory=list)
    switches: list[list[Any]] = dataclasses.field(default_factory=list)
    kind: str = "row"


@dataclasses.dataclass(frozen=True)
class Missing:
    """A variant that could not be measured, and why."""

    workload: str
    variant: str
    reason: str
    kind: str = "missing"


@dataclasses.dataclass(frozen=True)
class ScalePoint:
    """Cost at one size of one dimension of a workload."""

    workload: str
    dimension: str
    size: int
    variant: str
    turn: int
    step_ms_p50: float
    peak_mb: float
    kind: str = "scale"


@dataclasses.dataclass(frozen=True)
class ProfileEntry:
    """Self time of one kind of op in a step."""

    workload: str
    variant: str
    op: str
    count: float
    self_ms: float
    share: float
    kind: str = "profile"


@dataclasses.dataclass(frozen=True)
class ArticleRow:
    """A figure of the article beside the same measured here.

    Times are milliseconds a step except where `unit` says otherwise; saved
    is the share of the time before that is gone after, 0 to 1.
    """

    name: str
    unit: str
    theirs_before: float | None
    theirs_after: float | None
    theirs_saved: float | None
    ours_before: float
    ours_after: float
    ours_saved: float
    note: str = ""
    kind: str = "article"


Record: TypeAlias = Run | Row | Missing | ScalePoint | ProfileEntry | ArticleRow

_KINDS: dict[str, type] = {
    "run": Run,
    "row": Row,
    "missing": Missing,
    "scale": ScalePoint,
    "profile": ProfileEntry,
    "article": ArticleRow,
}


def append(path: Path, record: Record) -> None:
    """Adds one line to the file at `path`, which is made where needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(record)) + "\n")


def read(path: Path) -> list[Record]:
    """All records of the file at `path`, in order.

    Raises:
        ValueError: If a line is not a record; the error names the line. A
            last line that a killed run left unfinished is passed over.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            records.append(_KINDS[values["kind"]](**values))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise ValueError(
                f"{path}, line {number}: expected a record of one of the "
                f"kinds {', '.join(_KINDS)}. Received: {line[:80]!r}. Remove "
                "the line, or run the bench again."
            ) from error
    return records


def of_kind(records: Iterable[Record], kind: type) -> list[Any]:
    """The records of one class, in order."""
    return [record for record in records if isinstance(record, kind)]
