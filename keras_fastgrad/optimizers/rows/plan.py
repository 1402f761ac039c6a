"""Which embeddings are updated by the row, and why the others are not."""

import dataclasses
from typing import Any

import keras

from keras_fastgrad._keras import (
    TFOptimizer,
    innermost_optimizer,
    layers_of,
)
from keras_fastgrad.optimizers.rows.rule import Rule
from keras_fastgrad.optimizers.rows.rules import RULES

# Elements from which `"auto"` takes a table by the row.
LARGE = 1 << 21

# What a row update goes past: whoever overrides one of these wants it called.
_GONE_PAST = (
    "assign",
    "assign_add",
    "assign_sub",
    "_apply_weight_decay",
    "_clip_gradients",
    "_backend_apply_gradients",
)


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """What becomes of each embedding of a model.

    Args:
        layers: Those that are updated by the row.
        dense: Why each of the others is not, by the layer's path.
    """

    layers: tuple[keras.layers.Embedding, ...] = ()
    dense: dict[str, str] = dataclasses.field(default_factory=dict)


def rule_of(optimizer: Any) -> Rule | None:
    """The row rule of an optimizer, or `None`."""
    optimizer = innermost_optimizer(optimizer)
    if "update_step" in vars(optimizer):
        return None
    return RULES.get(type(optimizer).update_step)


def plan_rows(model: keras.Model, sparse_update: str) -> RowPlan:
    """Says which embeddings of `model` can be updated by the row.

    Args:
        model: A compiled model.
        sparse_update: `"auto"`, `"deferred"` or `"lazy"`; with `"auto"`,
            small tables are left out. `"dense"` leaves out all.
    """
    embeddings = [
        layer
        for layer in layers_of(model)
        if isinstance(layer, keras.layers.Embedding)
    ]
    if sparse_update == "dense" or not embeddings:
        return RowPlan()
    general = _refusal(model, sparse_update == "lazy")
    layers, dense = [], {}
    for layer in embeddings:
        reason = general or _layer_refusal(layer, sparse_update == "auto")
        if reason:
            dense[layer.path] = reason
        else:
            layers.append(layer)
    return RowPlan(tuple(layers), dense)


def _refusal(model: keras.Model, is_lazy: bool) -> str | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return "the model has no optimizer yet"
    if model.run_eagerly:
        return "compile(run_eagerly=True) leaves each step to Keras"
    if model._distribute_strategy is not None:
        return "a distribution strategy keeps the table"
    optimizer = innermost_optimizer(optimizer)
    return optimizer_refusal(optimizer, is_lazy)


def optimizer_refusal(optimizer: Any, is_lazy: bool) -> str | None:
    """Why `optimizer` cannot update a table by the row, or `None`."""
    name = type(optimizer).__name__
    rule = rule_of(optimizer)
    if rule is None:
        return f"optimizer {name} has no update by the row"
    for method in _GONE_PAST:
        if method in vars(optimizer) or getattr(
            type(optimizer), method
        ) is not getattr(TFOptimizer, method):
            return f"optimizer {name} has a `{method}` of its own"
    if optimizer.use_ema:
        return "use_ema=True averages all rows in every step"
    if optimizer.gradient_accumulation_steps:
        return "gradient_accumulation_steps gathers a gradient for all rows"
    if is_lazy:
        return None
    if rule.series(optimizer) is None:
        return (
            f"with these settings of {name} a row owes steps for longer than "
            "is kept"
        )
    return rule.refuses(optimizer)


def _layer_refusal(
    layer: keras.layers.Embedding, only_large: bool
) -> str | None:
    if type(layer).call is not keras.layers.Embedding.call:
        return f"{type(layer).__name__} has a `call` of its own"
    if layer.quantization_mode or layer.lora_enabled:
        return "its rows are made of several variables (quantised, or LoRA)"
    if layer.variable_dtype != "float32":
        return f"its weights are {layer.variable_dtype}, not float32"
    if layer.embeddings_regularizer is not None:
        return "its regularizer has a gradient for every row"
    if layer.embeddings_constraint is not None:
        return "its constraint is on all rows"
    if only_large and layer.input_dim * layer.output_dim < LARGE:
        return (
            f"a table of {layer.input_dim:,} x {layer.output_dim} is updated "
            "faster whole"
        )
    return None
