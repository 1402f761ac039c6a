"""Which layer trains with which op, for as long as a step is traced."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator

import keras

from keras_fastgrad._keras import path_of
from keras_fastgrad.gradients.activation_layer import ACTIVATIONS
from keras_fastgrad.gradients.attention_layer import ATTENTION
from keras_fastgrad.gradients.batch_norm_layer import BATCH_NORM
from keras_fastgrad.gradients.head import Head
from keras_fastgrad.gradients.norm_layer import NORMS
from keras_fastgrad.gradients.recurrent_layer import RECURRENT
from keras_fastgrad.gradients.rewrite import (
    Match,
    Rewrite,
    forget_kept,
    reason_kept,
)
from keras_fastgrad.strategy import Strategy


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which layers of a model get an op.

    Args:
        fast: The ops of each layer that has one, by the layer's path.
        keras: Why a layer keeps Keras's gradient, by the layer's path.
    """

    fast: dict[str, list[str]]
    keras: dict[str, str]


def rewrites_of(strategy: Strategy) -> tuple[Rewrite, ...]:
    """The rewrites that `strategy.gradients` asks for."""
    known: tuple[Rewrite, ...] = (
        *RECURRENT,
        BATCH_NORM,
        *NORMS,
        *ACTIVATIONS,
        ATTENTION,
        Head(strategy.precision),
    )
    if isinstance(strategy.gradients, str):
        return known if strategy.gradients == "auto" else ()
    return tuple(each for each in known if each.op in strategy.gradients)


def plan(model: keras.Model, rewrites: Collection[Rewrite]) -> Plan:
    """Says which layers of `model` the rewrites reach, and which not."""
    found = Plan({}, {})
    for match in _matches(model, rewrites):
        reason = match.reason or reason_kept(match.layer)
        if reason:
            found.keras[path_of(match.layer)] = reason
        else:
            found.fast.setdefault(path_of(match.layer), []).append(match.op)
    return found


@contextlib.contextmanager
def fast_gradients(
    model: keras.Model, rewrites: Collection[Rewrite]
) -> Iterator[None]:
    """While the context is open, the model's layers compute with the ops."""
    with contextlib.ExitStack() as stack:
        for match in list(_matches(model, rewrites)):
            if match.reason is None:
                forget_kept(match.layer)
                stack.enter_context(match.enter())
        yield


def _matches(
    model: keras.Model, rewrites: Collection[Rewrite]
) -> Iterator[Match]:
    for rewrite in rewrites:
        yield from rewrite.matches(model)
