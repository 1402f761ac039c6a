"""What gives one kind of layer one op."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

# What stands on a layer while a step is traced, by attribute.
Attributes = Mapping[str, Any]


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
