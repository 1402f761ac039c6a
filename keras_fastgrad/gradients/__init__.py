"""Ops whose backward pass is written by hand, as plain functions.

Each works in any TensorFlow code. While a training step is traced, the layers
of a model get them by themselves; see `rewrites`.
"""

from keras_fastgrad.gradients.check import check_gradient
from keras_fastgrad.gradients.gru import gru
from keras_fastgrad.gradients.lstm import lstm

__all__ = ["check_gradient", "gru", "lstm"]
