"""Puts the fused normalizations into Keras's layers."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad.gradients.norms import group_norm, layer_norm, rms_norm
from keras_fastgrad.gradients.rewrite import Attributes, LayerRewrite, kept

_UNKNOWN = "a size that it normalizes is unknown"


def _last_axes(layer: Any, inputs: tf.Tensor) -> int | None:
    """How many axes are normalized, or `None` where the op cannot."""
    rank = inputs.shape.rank
    axes = layer.axis if isinstance(layer.axis, list) else [layer.axis]
    wanted = sorted(axis % rank for axis in axes)
    if wanted != list(range(rank - len(wanted), rank)):
        kept(layer, "the axes that it normalizes are not the last")
        return None
    if None in inputs.shape[rank - len(wanted) :]:
        kept(layer, _UNKNOWN)
        return None
    return len(wanted)


def _of_layer(layer: Any) -> Callable:
    def call(inputs: Any) -> tf.Tensor:
        axes = _last_axes(layer, inputs)
        if axes is None:
            return type(layer).call(layer, inputs)
        outputs = layer_norm(
            inputs,
            _tensor(layer.gamma),
            _tensor(layer.beta),
            axes=axes,
            epsilon=layer.epsilon,
        )
        return tf.cast(outputs, layer.compute_dtype)

    return call


def _of_rms(layer: Any) -> Callable:
    def call(x: Any) -> tf.Tensor:
        axes = _last_axes(layer, x)
        if axes is None:
            return type(layer).call(layer, x)
        scale = _tensor(layer.scale)
        return rms_norm(x, scale, axes=axes, epsilon=layer.epsilon)

    return call


def _of_groups(layer: Any) -> Callable:
    def call(inputs: Any) -> tf.Tensor:
        if layer.axis not in (-1, inputs.shape.rank - 1):
            kept(layer, "its channels are not the last axis")
            return type(layer).call(layer, inputs)
        if None in inputs.shape[1:]:
            kept(layer, _UNKNOWN)
            return type(layer).call(layer, inputs)
        outputs = group_norm(
            inputs,
            layer.groups,
            _tensor(layer.gamma),
            _tensor(layer.beta),
            epsilon=layer.epsilon,
        )
        return tf.cast(outputs, layer.compute_dtype)

    return call


def _tensor(variable: Any) -> tf.Tensor | None:
    return None if variable is None else tf.convert_to_tensor(variable)


def _rewrite(
    name: str, layer_type: Any, replacement: Callable[[Any], Callable]
) -> LayerRewrite:
    def find(layer: Any) -> Attributes | str | None:
        if not isinstance(layer, layer_type):
            return None
        if type(layer).call is not layer_type.call:
            return f"{type(layer).__name__} has a `call` of its own"
        if getattr(layer, "rms_scaling", False):
            return "`rms_scaling` divides by the deviation, not the mean square"
        return {"call": replacement(layer)}

    return LayerRewrite(name, find)


NORMS = (
    _rewrite("layer_norm", keras.layers.LayerNormalization, _of_layer),
    _rewrite("rms_norm", keras.layers.RMSNormalization, _of_rms),
    _rewrite("group_norm", keras.layers.GroupNormalization, _of_groups),
)
