"""What gives layers an op, for as long as a step is traced."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import keras

from keras_fastgrad._keras import layers_of, shadowed

# What stands on a layer while a step is traced, by attribute.
Attributes = Mapping[str, Any]

# Why a layer that could have an op kept Keras's gradient when it was called.
_kept: weakref.WeakKeyDictionary[keras.layers.Layer, str] = (
    weakref.WeakKeyDictionary()
)


@dataclasses.dataclass(frozen=True)
class Match:
    """A layer that an op is meant for.

    Args:
        layer: The layer.
        op: The name of the op.
        enter: Gives the op to the layer while a context is open.
        reason: Why the layer keeps Keras's gradient; `enter` is not used
            then. Defaults to `None`.
    """

    layer: keras.layers.Layer
    op: str
    enter: Callable[[], contextlib.AbstractContextManager] = (
        contextlib.nullcontext
    )
    reason: str | None = None


class Rewrite(Protocol):
    """Something that gives layers of a model an op."""

    @property
    def op(self) -> str:
        """The name of the op, as in `Strategy(gradients=...)`."""

    def matches(self, model: keras.Model) -> Iterator[Match]:
        """The layers of `model` that the op is meant for."""


@dataclasses.dataclass(frozen=True)
class LayerRewrite:
    """An op for every layer of some kind.

    Args:
        op: The name of the op, as in `Strategy(gradients=...)`.
        find: For a layer of the right kind, returns the attributes that stand
            on it while a step is traced, or a sentence on why it keeps Keras's
            gradient; for any other layer, `None`.
    """

    op: str
    find: Callable[[keras.layers.Layer], Attributes | str | None]

    def matches(self, model: keras.Model) -> Iterator[Match]:
        """The layers of the kind, nested ones included."""
        for layer in layers_of(model):
            found = self.find(layer)
            if isinstance(found, str):
                yield Match(layer, self.op, reason=found)
            elif found is not None:
                yield Match(layer, self.op, _shadow(layer, found))


def _shadow(layer: keras.layers.Layer, attributes: Attributes) -> Callable:
    return lambda: shadowed(layer, **attributes)


def kept(layer: keras.layers.Layer, reason: str) -> None:
    """Notes that `layer`, as it was called, keeps Keras's gradient.

    What it is called with, a mask say, is known only while a step is traced.

    Args:
        layer: A layer that has an op.
        reason: Why this call did not use it.
    """
    _kept[layer] = reason


def reason_kept(layer: keras.layers.Layer) -> str | None:
    """What `kept` noted of the layer in the last trace, or `None`."""
    return _kept.get(layer)


def forget_kept(layer: keras.layers.Layer) -> None:
    """Drops what `kept` noted, as a new trace begins."""
    _kept.pop(layer, None)
