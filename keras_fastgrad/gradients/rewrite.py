"""What gives one kind of layer one op."""

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras

# What stands on a layer while a step is traced, by attribute.
Attributes = Mapping[str, Any]

# Why a layer that could have an op kept Keras's gradient when it was called.
_kept: weakref.WeakKeyDictionary[keras.layers.Layer, str] = (
    weakref.WeakKeyDictionary()
)


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """Gives one kind of layer one op.

    Args:
        op: The op's name, as `Strategy(gradients={...})` takes it.
        find: Of a layer: the attributes that stand in the place of its own
            while a step is traced (`{"call": ...}`); or a sentence on why the
            layer keeps Keras's gradient; or `None` where the op is none of
            its business.
    """

    op: str
    find: Callable[[keras.layers.Layer], Attributes | str | None]


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
