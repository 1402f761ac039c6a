"""Ops whose backward pass is written by hand, as plain functions.

Each works in any TensorFlow code. While a training step is traced, the layers
of a model get them by themselves; see `rewrites`.
"""

from keras_fastgrad.gradients.activations import gelu, mish, silu, swish
from keras_fastgrad.gradients.attention import attention
from keras_fastgrad.gradients.batch_norm import batch_norm
from keras_fastgrad.gradients.check import check_gradient
from keras_fastgrad.gradients.gru import gru
from keras_fastgrad.gradients.linear_cross_entropy import (
    linear_cross_entropy,
)
from keras_fastgrad.gradients.linear_top_k import linear_top_k
from keras_fastgrad.gradients.lstm import lstm
from keras_fastgrad.gradients.multitask import multitask
from keras_fastgrad.gradients.norms import group_norm, layer_norm, rms_norm

__all__ = [
    "attention",
    "batch_norm",
    "check_gradient",
    "gelu",
    "group_norm",
    "gru",
    "layer_norm",
    "linear_cross_entropy",
    "linear_top_k",
    "lstm",
    "mish",
    "multitask",
    "rms_norm",
    "silu",
    "swish",
]
