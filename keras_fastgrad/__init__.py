"""Faster training for Keras 3 on TensorFlow, by changing one base class."""

from keras_fastgrad import _startup  # noqa: F401, I001 (before TensorFlow)
from keras_fastgrad import callbacks, gradients, layers
from keras_fastgrad.model import (
    FastGradMixin,
    FastGradModel,
    FastGradSequential,
)
from keras_fastgrad.strategy import Strategy

__version__ = "0.1.0"

__all__ = [
    "FastGradMixin",
    "FastGradModel",
    "FastGradSequential",
    "Strategy",
    "callbacks",
    "gradients",
    "layers",
]
