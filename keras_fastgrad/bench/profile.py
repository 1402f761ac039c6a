"""Self time of each op of a step, before and after."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keras_fastgrad.bench.launch import run_module
from keras_fastgrad.bench.runner import Hooks
from keras_fastgrad.bench.variants import exact_settings
from keras_fastgrad.bench.workloads import find
from keras_fastgrad.reports.records import (
    Missing,
    ProfileEntry,
    Record,
    of_kind,
)

ENGINES = ("keras", "fastgrad")
WORKER = "keras_fastgrad.bench.profile_worker"
_SHOWN = 15


def run(name: str, timeout: float, hooks: Hooks) -> None:
    """Profiles a workload under stock Keras and under this package.

    Args:
        name: The workload's name.
        timeout: Seconds after which a worker is ended.
        hooks: Where results and progress go.

    Raises:
        ValueError: If the workload is not known.
    """
    (setting,) = exact_settings(find(name))
    for engine in ENGINES:
        variant = "keras" if engine == "keras" else "fastgrad-exact"
        hooks.began(f"{name}, {variant}: profile")
        words = [name, engine, "default" if engine == "keras" else setting]
        try:
            entries = json.loads(run_module(WORKER, words, timeout))
        except RuntimeError as error:
            hooks.record(Missing(name, variant, str(error)))
        else:
            for entry in entries:
                hooks.record(ProfileEntry(name, variant, **entry))
        hooks.advanced()


def show(records: Sequence[Record], console: Console) -> None:
    """Prints the ops that take most, where there are such records."""
    entries = of_kind(records, ProfileEntry)
    if not entries:
        return
    variants = list(dict.fromkeys(entry.variant for entry in entries))
    found = {(entry.op, entry.variant): entry for entry in entries}
    largest = {
        entry.op: max(
            found[entry.op, variant].self_ms
            for variant in variants
            if (entry.op, variant) in found
        )
        for entry in entries
    }
    table = Table(title=f"{entries[0].workload}: self time a step, all cores")
    table.add_column("op")
    for variant in variants:
        table.add_column(f"{variant}, ms", justify="right")
        table.add_column("times", justify="right")
        table.add_column("share", justify="right")
    for op in sorted(largest, key=largest.__getitem__, reverse=True)[:_SHOWN]:
        cells = []
        for variant in variants:
            entry = found.get((op, variant))
            cells += _cells(entry) if entry else ["-", "-", "-"]
        table.add_row(escape(op), *cells)
    table.add_section()
    totals = []
    for variant in variants:
        total = sum(e.self_ms for e in entries if e.variant == variant)
        totals += [f"{total:.3f}", "", ""]
    table.add_row("all", *totals)
    console.print(table)


def _cells(entry: ProfileEntry) -> list[str]:
    return [
        f"{entry.self_ms:.3f}",
        f"{entry.count:.1f}",
        f"{100 * entry.share:.0f} %",
    ]
