"""Puts the fused kernel into Keras's BatchNormalization layers."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad.gradients.batch_norm import batch_norm
from keras_fastgrad.gradients.rewrite import Attributes, LayerRewrite, kept

_Layer = keras.layers.BatchNormalization


def _find(layer: keras.layers.Layer) -> Attributes | str | None:
    if not isinstance(layer, _Layer):
        return None
    return _refusal(layer) or {"call": _call(layer)}


def _refusal(layer: Any) -> str | None:
    kind = type(layer)
    if kind.call is not _Layer.call or kind._moments is not _Layer._moments:
        return f"{kind.__name__} has a `call` of its own"
    if layer.synchronized:
        return "its statistics are synchronized across replicas"
    if getattr(layer, "renorm", False):
        return "it renormalizes"
    if not layer.built or layer.axis not in (-1, layer.input_spec.ndim - 1):
        return "its channels are not the last axis"
    if keras.backend.standardize_dtype(layer.moving_mean.dtype) != "float32":
        return "its statistics are not float32"
    return None


def _call(layer: Any) -> Callable:
    def call(inputs: Any, training: Any = None, mask: Any = None) -> tf.Tensor:
        own = type(layer).call
        # A layer that is frozen, or asked not to train, uses what it has.
        if training is not True or not layer.trainable:
            return own(layer, inputs, training=training, mask=mask)
        if mask is not None:
            kept(layer, "its inputs have a mask, which the kernel cannot use")
            return own(layer, inputs, training=training, mask=mask)
        if inputs.dtype not in (tf.float32, tf.bfloat16, tf.float16):
            kept(layer, f"the kernel cannot compute in {inputs.dtype.name}")
            return own(layer, inputs, training=training, mask=mask)
        outputs, mean, variance = batch_norm(
            inputs,
            None if layer.gamma is None else layer.gamma.value,
            None if layer.beta is None else layer.beta.value,
            epsilon=layer.epsilon,
        )
        for moving, new in (
            (layer.moving_mean, mean),
            (layer.moving_variance, variance),
        ):
            moving.assign(
                moving * layer.momentum
                + tf.stop_gradient(new) * (1.0 - layer.momentum)
            )
        return tf.cast(outputs, layer.compute_dtype)

    return call


BATCH_NORM = LayerRewrite("batch_norm", _find)
