"""Puts the one-pass activations into Keras layers that name them."""

from collections.abc import Callable
from typing import Any

import keras

from keras_fastgrad.gradients.activations import gelu, mish, silu
from keras_fastgrad.gradients.rewrite import Attributes, LayerRewrite


def _rewrite(
    name: str, own: Callable[..., Any], op: Callable[..., Any]
) -> LayerRewrite:
    def find(layer: keras.layers.Layer) -> Attributes | str | None:
        if layer.__dict__.get("activation") is not own:
            return None
        if hasattr(layer, "state_size"):
            return f"a cell calls {name} on few elements in each time step"
        return {"activation": op}

    return LayerRewrite(name, find)


ACTIVATIONS = (
    _rewrite("gelu", keras.activations.gelu, gelu),
    _rewrite("silu", keras.activations.silu, silu),
    _rewrite("mish", keras.activations.mish, mish),
)
