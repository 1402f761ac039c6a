"""What runs, of what is wanted: `Facts` about a model, and what follows."""

import dataclasses
from typing import Any

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
    """

    jit_compile: bool
    steps_per_execution: int
    run_eagerly: bool
    no_jit_reason: str | None
    no_kernel_reason: str | None
    has_embedding: bool


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What runs, and why it is not what was asked for.

    Args:
        strategy: The strategy with every `"auto"` decided.
        reasons: For a field, one sentence on its value.
        refused: Fields asked for by value that could not be had.
    """

    strategy: Strategy
    reasons: dict[str, str]
    refused: tuple[str, ...]

    @property
    def steps_per_execution(self) -> int:
        """The decided number of steps of a call."""
        return int(self.strategy.steps_per_execution)


def resolve(strategy: Strategy, facts: Facts) -> Resolution:
    """Decides what runs.

    Args:
        strategy: What is wanted.
        facts: What is true of the model.

    Returns:
        The decided strategy with the reason for each decided field.
    """
    decided: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    refused: list[str] = []

    if strategy.jit_compile == "auto":
        decided["jit_compile"] = facts.jit_compile
        reasons["jit_compile"] = "what compile() came to"
    elif strategy.jit_compile:
        reason = facts.no_jit_reason
        if facts.run_eagerly:
            reason = "compile(run_eagerly=True) leaves nothing to compile"
        if reason:
            decided["jit_compile"] = False
            reasons["jit_compile"] = reason
            refused.append("jit_compile")

    if strategy.steps_per_execution == "auto":
        decided["steps_per_execution"] = facts.steps_per_execution
        reasons["steps_per_execution"] = "what compile() was given"

    if strategy.optimizer_update != "keras":
        reason = facts.no_kernel_reason
        decided["optimizer_update"] = "keras" if reason else "fused"
        reasons["optimizer_update"] = reason or "one kernel for each variable"
        if reason and strategy.optimizer_update == "fused":
            refused.append("optimizer_update")

    if facts.has_embedding:
        reasons["sparse_update"] = (
            "as stock Keras: an id that repeats in a batch is not summed first"
            if keeps_slices(strategy)
            else "an id that repeats in a batch is summed before the update; "
            "stock Keras squares and clips its parts"
        )
    return Resolution(
        dataclasses.replace(strategy, **decided), reasons, tuple(refused)
    )
