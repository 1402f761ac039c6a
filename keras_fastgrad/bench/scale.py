"""Grows one dimension of a workload: what does a step cost at each size?"""

import dataclasses
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.launch import Launch
from keras_fastgrad.bench.runner import Hooks, few_steps
from keras_fastgrad.bench.variants import exact_settings
from keras_fastgrad.bench.workloads import Workload, find, growth
from keras_fastgrad.reports.records import (
    Missing,
    Record,
    ScalePoint,
    of_kind,
)

VARIANTS = ("keras", "fastgrad-exact")


def run(name: str, turns: int, launch: Launch, hooks: Hooks) -> None:
    """Measures a workload at each of its sizes, in turns.

    A size that fails is recorded as missing; larger ones are not tried for
    that variant.

    Args:
        name: The workload's name.
        turns: How often each size is measured.
        launch: Runs one job.
        hooks: Where results and progress go.

    Raises:
        ValueError: If the workload is not known or cannot grow.
    """
    workload, scale = find(name), growth(name)
    failed: set[str] = set()
    for size in scale.sizes:
        for turn in range(1, turns + 1):
            for variant in VARIANTS:
                if variant in failed:
                    continue
                job = _job(workload, variant, size, turn)
                hooks.began(f"{name}, {variant}: {scale.dimension} {size:,}")
                result = launch(job)
                hooks.advanced()
                if isinstance(result, Missing):
                    failed.add(variant)
                    reason = f"{scale.dimension} {size:,}: {result.reason}"
                    hooks.record(dataclasses.replace(result, reason=reason))
                    continue
                hooks.record(
                    ScalePoint(
                        name,
                        scale.dimension,
                        size,
                        variant,
                        turn,
                        result.step_ms_p50,
                        result.peak_mb,
                    )
                )


def process_count(name: str, turns: int) -> int:
    """How many processes `run` starts."""
    return len(growth(name).sizes) * turns * len(VARIANTS)


def show(records: Sequence[Record], console: Console) -> None:
    """Prints cost against size, where there are such records."""
    points = of_kind(records, ScalePoint)
    if not points:
        return
    table = Table(title=f"{points[0].workload}: cost against size")
    table.add_column(points[0].dimension, justify="right")
    for variant in VARIANTS:
        table.add_column(f"{variant}, ms/step", justify="right")
        table.add_column("peak MB", justify="right")
    table.add_column("times keras", justify="right")
    for size in dict.fromkeys(point.size for point in points):
        here = [point for point in points if point.size == size]
        table.add_row(f"{size:,}", *_cells(here))
    console.print(table)


def _cells(points: Sequence[ScalePoint]) -> list[str]:
    cells, times = [], {}
    for variant in VARIANTS:
        mine = {p.turn: p for p in points if p.variant == variant}
        times[variant] = {turn: p.step_ms_p50 for turn, p in mine.items()}
        if mine:
            middle = median(times[variant].values())
            peak = max(point.peak_mb for point in mine.values())
            cells += [f"{middle:.3g}", f"{peak:,.0f}"]
        else:
            cells += ["-", "-"]
    before, after = (times[variant] for variant in VARIANTS)
    found = [before[turn] / after[turn] for turn in before if turn in after]
    return [*cells, escape(f"{median(found):.2f}" if found else "-")]


def _job(workload: Workload, variant: str, size: int, turn: int) -> Job:
    arguments: dict[str, Any] = {
        "steps": few_steps(workload),
        "warmup": 32 if workload.is_short else 3,
        "turn": turn,
        "size": size,
    }
    if variant == "keras":
        return Job(workload.name, variant, "keras", **arguments)
    (setting,) = exact_settings(workload)
    return Job(workload.name, variant, "fastgrad", setting, **arguments)
