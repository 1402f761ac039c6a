"""Which layer trains with which op, for as long as a step is traced."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator

import keras

from keras_fastgrad._keras import layers_of, shadowed
from keras_fastgrad.gradients.activation_layer import ACTIVATIONS
from keras_fastgrad.gradients.batch_norm_layer import BATCH_NORM
from keras_fastgrad.gradients.norm_layer import NORMS
from keras_fastgrad.gradients.recurrent_layer import RECURRENT
from keras_fastgrad.gradients.rewrite import (
    Attributes,
    Rewrite,
    forget_kept,
    reason_kept,
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which layers of a model get an op.

    Args:
        fast: The ops of each layer that has one, by the layer's path.
        keras: Why a layer keeps Keras's gradient, by the layer's path.
    """

    fast: dict[str, list[str]]
    keras: dict[str, str]


REWRITES: tuple[Rewrite, ...] = (*RECURRENT, BATCH_NORM, *NORMS, *ACTIVATIONS)


def chosen(
    gradients: str | Collection[str], rewrites: tuple[Rewrite, ...] = REWRITES
) -> tuple[Rewrite, ...]:
    """The rewrites that a strategy asks for.

    Args:
        gradients: `Strategy.gradients`: `"auto"` (all), `"keras"` (none) or
            names of ops.
        rewrites: Those to choose from.
    """
    if isinstance(gradients, str):
        return rewrites if gradients == "auto" else ()
    return tuple(rewrite for rewrite in rewrites if rewrite.op in gradients)


def plan(model: keras.Model, rewrites: Collection[Rewrite]) -> Plan:
    """Says which layers of `model` the rewrites reach, and which not."""
    found = Plan({}, {})
    for layer, rewrite, attributes in _matches(model, rewrites):
        reason = attributes if isinstance(attributes, str) else None
        reason = reason or reason_kept(layer)
        if reason:
            found.keras[layer.path] = reason
        else:
            found.fast.setdefault(layer.path, []).append(rewrite.op)
    return found


@contextlib.contextmanager
def fast_gradients(
    model: keras.Model, rewrites: Collection[Rewrite]
) -> Iterator[None]:
    """While the context is open, the model's layers compute with the ops."""
    with contextlib.ExitStack() as stack:
        for layer, _, attributes in list(_matches(model, rewrites)):
            if not isinstance(attributes, str):
                forget_kept(layer)
                stack.enter_context(shadowed(layer, **attributes))
        yield


def _matches(
    model: keras.Model, rewrites: Collection[Rewrite]
) -> Iterator[tuple[keras.layers.Layer, Rewrite, Attributes | str]]:
    for layer in layers_of(model):
        for rewrite in rewrites:
            attributes = rewrite.find(layer)
            if attributes is not None:
                yield layer, rewrite, attributes
