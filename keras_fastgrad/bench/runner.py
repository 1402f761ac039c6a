"""Runs a bench in turns: A B C A B C, each in a process of its own.

    stock Keras to compare with -> short trials of settings -> turns

Turns hit all variants with the same drift of the machine.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_fastgrad.bench import references
from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.launch import Launch
from keras_fastgrad.bench.references import References
from keras_fastgrad.bench.variants import Variant, missing_reason
from keras_fastgrad.bench.workloads import Workload, find
from keras_fastgrad.reports.records import Missing, Record, Row


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a bench is to measure.

    Args:
        workloads: Their names.
        variants: Who takes part.
        turns: How often each is measured.
        steps: Steps to time; `None` for each workload's own number.
        folder: Where references are kept.
        quick: Whether to time a few steps only.
    """

    workloads: tuple[str, ...]
    variants: tuple[Variant, ...]
    turns: int
    steps: int | None
    folder: Path
    quick: bool = False

    def steps_of(self, workload: Workload) -> int:
        """Steps to time of one workload."""
        if self.steps is not None:
            return self.steps
        return few_steps(workload) if self.quick else workload.steps


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Where results and progress go.

    Args:
        record: Called with each record as it comes.
        began: Called with a line that says what runs now.
        advanced: Called when a process has ended.
    """

    record: Callable[[Record], None]
    began: Callable[[str], None] = lambda text: None
    advanced: Callable[[], None] = lambda: None


def few_steps(workload: Workload) -> int:
    """Steps enough to tell settings apart."""
    return 128 if workload.is_short else 5


def process_count(plan: Plan) -> int:
    """How many processes the plan takes, for a progress bar."""
    count = 0
    for workload in map(find, plan.workloads):
        variants = _available(plan, workload)
        kinds = references.kinds(workload, variants)
        count += len(kinds) + bool(kinds)
        for variant in variants:
            tried = len(variant.settings(workload))
            count += plan.turns + (tried if tried > 1 else 0)
    return count


def run(plan: Plan, launch: Launch, hooks: Hooks) -> None:
    """Measures everything in the plan.

    A worker that fails costs its variant, not the run: a `Missing` is
    recorded, and the others go on.

    Args:
        plan: What to measure.
        launch: Runs one job.
        hooks: Where results and progress go.

    Raises:
        ValueError: If a workload is not known; before anything is measured.
    """

    def watched(job: Job, stage: str) -> Row | Missing:
        hooks.began(f"{job.workload}, {job.variant}: {stage}")
        result = launch(job)
        hooks.advanced()
        return result

    for workload in [find(name) for name in plan.workloads]:
        for result in _measured(plan, workload, watched):
            hooks.record(result)


_Watched = Callable[[Job, str], Row | Missing]


def _measured(
    plan: Plan, workload: Workload, launch: _Watched
) -> Iterator[Row | Missing]:
    for variant in plan.variants:
        reason = missing_reason(variant, workload)
        if reason:
            yield Missing(workload.name, variant.name, reason)
    variants = _available(plan, workload)
    steps = plan.steps_of(workload)
    stock = References(plan.folder, workload, steps)
    spread = 0.0
    kinds = references.kinds(workload, variants)
    for kind in kinds:
        result = launch(stock.job(kind), f"{kind} gradients, to compare with")
        if isinstance(result, Missing):
            name = f"reference with {kind} gradients"
            yield dataclasses.replace(result, variant=name)
        elif kind == kinds[0]:
            moved = launch(stock.perturbed(kind), "weights moved by 3e-7")
            spread = references.spread(result, moved)
    jobs = []
    for variant in variants:
        setting = _fastest(variant, workload, launch)
        if isinstance(setting, Missing):
            yield setting
            continue
        job = Job(
            workload.name, variant.name, variant.engine, setting, steps=steps
        )
        jobs.append(stock.compared(job, variant, spread))
    failed: set[str] = set()
    for turn in range(1, plan.turns + 1):
        for job in jobs:
            if job.variant in failed:
                continue
            result = launch(dataclasses.replace(job, turn=turn), f"turn {turn}")
            if isinstance(result, Missing):
                failed.add(job.variant)
            yield result


def _fastest(
    variant: Variant, workload: Workload, launch: _Watched
) -> str | Missing:
    settings = variant.settings(workload)
    if len(settings) == 1:
        return settings[0]
    times: dict[str, float] = {}
    failure = None
    for setting in settings:
        result = launch(
            Job(
                workload.name,
                variant.name,
                variant.engine,
                setting,
                steps=few_steps(workload),
                warmup=32 if workload.is_short else 3,
            ),
            f"trying {setting}",
        )
        if isinstance(result, Missing):
            failure = result
        else:
            times[setting] = result.step_ms_p50
    if not times:
        return failure or Missing(
            workload.name, variant.name, "it has no setting to try"
        )
    return min(times, key=times.__getitem__)


def _available(plan: Plan, workload: Workload) -> list[Variant]:
    return [
        variant
        for variant in plan.variants
        if missing_reason(variant, workload) is None
    ]
