"""What runs, of what is wanted: `Facts` about a model, and what follows."""

import dataclasses
from typing import Any

from keras_fastgrad.optimizers.rows.plan import RowPlan
from keras_fastgrad.strategy import Strategy, keeps_slices


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is true of a compiled model, as far as a strategy depends on it.

    Args:
        jit_compile: What Keras made of `compile(jit_compile=...)`.
        steps_per_execution: What `compile` was given.
        run_eagerly: What `compile` was given.
        no_jit_reason: Why XLA cannot compile this model, or `None`.
        no_kernel_reason: Why the optimizer has no fused update, or `None`.
        has_embedding: Whether a gradient may come as `IndexedSlices`.
        rows: Which embeddings can be updated by the row.
    """

    jit_compile: bool
    steps_per_execution: int
    run_eagerly: bool
    no_jit_reason: str | None
    no_kernel_reason: str | None
    has_embedding: bool
    rows: RowPlan = dataclasses.field(default_factory=RowPlan)


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What runs, and why it is not what was asked for.

    Args:
        strategy: The strategy with every `"auto"` decided.
        reasons: For a field, one sentence on its value.
        refused: Fields asked for by value that could not be had.
        rows: Which embeddings are updated by the row.
    """

    strategy: Strategy
    reasons: dict[str, str]
    refused: tuple[str, ...]
    rows: RowPlan

    @property
    def steps_per_execution(self) -> int:
        """The decided number of steps of a call."""
        return int(self.strategy.steps_per_execution)


class _Decision:
    """What is decided so far, with the reasons."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        self.refused: list[str] = []

    def take(
        self, field: str, value: Any, reason: str, refuses: bool = False
    ) -> None:
        self.values[field], self.reasons[field] = value, reason
        if refuses:
            self.refused.append(field)


def resolve(strategy: Strategy, facts: Facts) -> Resolution:
    """Decides what runs.

    Args:
        strategy: What is wanted.
        facts: What is true of the model.

    Returns:
        The decided strategy with the reason for each decided field.
    """
    decision = _Decision()
    _decide_jit_compile(strategy, facts, decision)
    _decide_sparse_update(strategy, facts, decision)
    if strategy.steps_per_execution == "auto":
        decision.take(
            "steps_per_execution",
            facts.steps_per_execution,
            "what compile() was given",
        )
    if strategy.optimizer_update != "keras":
        reason = facts.no_kernel_reason
        decision.take(
            "optimizer_update",
            "keras" if reason else "fused",
            reason or "one kernel for each variable",
            refuses=bool(reason) and strategy.optimizer_update == "fused",
        )
    decided = dataclasses.replace(strategy, **decision.values)
    by_row = decided.sparse_update in ("deferred", "lazy")
    return Resolution(
        decided,
        decision.reasons,
        tuple(decision.refused),
        facts.rows if by_row else RowPlan((), facts.rows.dense),
    )


def _decide_jit_compile(
    strategy: Strategy, facts: Facts, decision: _Decision
) -> None:
    if strategy.jit_compile == "auto":
        if facts.jit_compile and facts.rows.layers:
            decision.take(
                "jit_compile",
                False,
                "updates by the row need shapes that XLA cannot know",
            )
        else:
            decision.take(
                "jit_compile", facts.jit_compile, "what compile() came to"
            )
    elif strategy.jit_compile:
        reason = facts.no_jit_reason
        if facts.run_eagerly:
            reason = "compile(run_eagerly=True) leaves nothing to compile"
        if reason:
            decision.take("jit_compile", False, reason, refuses=True)


def _decide_sparse_update(
    strategy: Strategy, facts: Facts, decision: _Decision
) -> None:
    if not facts.has_embedding:
        return
    if keeps_slices(strategy):
        decision.reasons["sparse_update"] = (
            "as stock Keras: an id that repeats in a batch is not summed first"
        )
        return
    summed = (
        "an id that repeats in a batch is summed before the update; stock "
        "Keras squares and clips its parts"
    )
    if strategy.sparse_update == "dense":
        decision.reasons["sparse_update"] = summed
        return
    asked = strategy.sparse_update != "auto"
    runs_in_xla = decision.values.get("jit_compile", strategy.jit_compile)
    if runs_in_xla:
        reason = "updates by the row need shapes that XLA cannot know"
        decision.take("sparse_update", "dense", f"{reason}; {summed}", asked)
    elif facts.rows.layers:
        decision.take(
            "sparse_update",
            "lazy" if strategy.sparse_update == "lazy" else "deferred",
            f"only rows that a batch names are read and updated; {summed}",
        )
    else:
        reason = next(iter(facts.rows.dense.values()))
        decision.take("sparse_update", "dense", f"{reason}; {summed}", asked)
