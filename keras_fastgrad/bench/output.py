"""What a run leaves behind: JSON Lines as it goes, CSV at its end."""

import contextlib
import csv
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from keras_fastgrad.reports import records
from keras_fastgrad.reports.records import Record, Row

_NOT_IN_CSV = ("step_ms", "switches", "kind")


class Output:
    """The records of a run, in memory and on disk.

    Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> from keras_fastgrad.reports.records import Missing, read
    >>> output = Output(Path(tempfile.mkdtemp()))
    >>> output.record(Missing("mlp", "torch", "not installed"))
    >>> read(output.path) == output.records
    True

    Args:
        folder: Where `run.jsonl` and `run.csv` go.
    """

    def __init__(self, folder: Path) -> None:
        self.records: list[Record] = []
        self.path = folder / "run.jsonl"

    def record(self, record: Record) -> None:
        """Appends one record, at once."""
        self.records.append(record)
        records.append(self.path, record)

    def write_csv(self) -> Path | None:
        """Writes the rows beside the records.

        Returns:
            The file, or `None` where there are no rows.
        """
        rows = records.of_kind(self.records, Row)
        if not rows:
            return None
        columns = [
            field.name
            for field in dataclasses.fields(Row)
            if field.name not in _NOT_IN_CSV
        ]
        path = self.path.with_suffix(".csv")
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(map(dataclasses.asdict, rows))
        return path


@contextlib.contextmanager
def progress_of(
    console: Console, total: int
) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """A progress bar over the processes of a run.

    Args:
        console: Where it is drawn.
        total: How many processes there will be.

    Yields:
        Two functions: `began(text)` says what runs now, `advanced()` that it
        has ended.
    """
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)
        yield (
            lambda text: progress.update(task, description=text),
            lambda: progress.advance(task),
        )
