"""Smooth activations, each one pass forwards and one backwards."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording
from keras_fastgrad.gradients.compiled import Compiled, wide


# With P the distribution function of the normal and p its density
# (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016):
#   y = x P(x),  dy/dx = P(x) + x p(x).
def _gelu(x: tf.Tensor) -> tf.Tensor:
    return x * _normal(x)


def _gelu_slope(x: tf.Tensor) -> tf.Tensor:
    density = tf.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return _normal(x) + x * density


# Where P is below rounding. XLA's erf ends a rounding short of -1, which x
# would blow up.
_LOWEST = {tf.float32: -5.5, tf.float64: -8.3}


def _normal(x: tf.Tensor) -> tf.Tensor:
    inner = 0.5 * (1 + tf.math.erf(x * math.sqrt(0.5)))
    return tf.where(x < _LOWEST[x.dtype], tf.zeros_like(x), inner)


# The same with P(x) = (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3):
#   dy/dx = P(x) + x (1 - tanh^2 u) / 2 du/dx.
_TANH_FACTOR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1 + _tanh_of_cubic(x))


def _gelu_tanh_slope(x: tf.Tensor) -> tf.Tensor:
    top = _tanh_of_cubic(x)
    inner = _TANH_FACTOR * (1 + 3 * _CUBIC * x * x)
    return 0.5 * (1 + top) + 0.5 * x * (1 - top * top) * inner


def _tanh_of_cubic(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(_TANH_FACTOR * x * (1 + _CUBIC * x * x))


# With s the logistic function (Elfwing, Uchibe and Doya, 2017):
#   y = x s(x),  dy/dx = s (1 + x (1 - s)).
def _silu(x: tf.Tensor) -> tf.Tensor:
    return x * tf.sigmoid(x)


def _silu_slope(x: tf.Tensor) -> tf.Tensor:
    logistic = tf.sigmoid(x)
    return logistic * (1 + x * (1 - logistic))


# With t = tanh(log(1 + e^x)) and s the logistic function (Misra, Mish, 2019):
#   y = x t,  dy/dx = t + x (1 - t^2) s.
# With e = e^x and n = e (e + 2), t = n / (n + 2); from x = 20 on, t is 1 to
# float32 rounding, and from 40 on to float64's.
def _mish(x: tf.Tensor) -> tf.Tensor:
    return x * _mish_tanh(x)


def _mish_slope(x: tf.Tensor) -> tf.Tensor:
    top = _mish_tanh(x)
    # 1 - t^2 = 4 (n + 1) / (n + 2)^2, without the cancellation.
    power = _power(x)
    whole = power * (power + 2) + 2
    rest = 4 * tf.square((power + 1) / whole)
    return top + x * rest * tf.sigmoid(x)


def _mish_tanh(x: tf.Tensor) -> tf.Tensor:
    power = _power(x)
    numerator = power * (power + 2)
    return numerator / (numerator + 2)


def _power(x: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.minimum(x, tf.constant(40.0, x.dtype)))


def _op(
    forward: Callable[[tf.Tensor], tf.Tensor],
    slope: Callable[[tf.Tensor], tf.Tensor],
) -> Callable[[Any], tf.Tensor]:
    # The input is what is kept; both passes compute in at least float32.
    def values(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(forward(*wide(x)), x.dtype)

    def backwards(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        broad, above = wide(x, upstream)
        return tf.cast(above * slope(broad), x.dtype)

    there, back = Compiled(values), Compiled(backwards)

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        with stop_recording():
            made = there(x)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return back(x, upstream)

        return tf.stop_gradient(made), gradient

    return lambda x: op(tf.convert_to_tensor(x))


_exact_gelu = _op(_gelu, _gelu_slope)
_approximate_gelu = _op(_gelu_tanh, _gelu_tanh_slope)
_one_pass_silu = _op(_silu, _silu_slope)
_one_pass_mish = _op(_mish, _mish_slope)


def gelu(x: tf.Tensor, approximate: bool = False) -> tf.Tensor:
    """The Gaussian error linear unit, `x * P(X <= x)` with X normal.

    One pass each way, from the input alone: 1.6 to 3.3 times faster than
    TensorFlow's chain above 100,000 elements on a processor, level below
    20,000.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import gelu
    >>> gelu(tf.constant([-1.0, 0.0, 1.0])).numpy().round(4)
    array([-0.1587,  0.    ,  0.8413], dtype=float32)

    Args:
        x: Float tensor of any shape.
        approximate: Take the tanh formula for P. Defaults to `False`.

    Returns:
        A tensor like `x`. Half precision is computed in float32.
    """
    return _approximate_gelu(x) if approximate else _exact_gelu(x)


def silu(x: tf.Tensor) -> tf.Tensor:
    """The sigmoid linear unit, `x * sigmoid(x)`, also known as swish.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import silu
    >>> silu(tf.constant([-1.0, 0.0, 1.0])).numpy().round(4)
    array([-0.2689,  0.    ,  0.7311], dtype=float32)

    Args:
        x: Float tensor of any shape.

    Returns:
        A tensor like `x`. Half precision is computed in float32.
    """
    return _one_pass_silu(x)


swish = silu


def mish(x: tf.Tensor) -> tf.Tensor:
    """Mish, `x * tanh(softplus(x))`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import mish
    >>> mish(tf.constant([-1.0, 0.0, 1.0])).numpy().round(4)
    array([-0.3034,  0.    ,  0.8651], dtype=float32)

    Args:
        x: Float tensor of any shape.

    Returns:
        A tensor like `x`. Half precision is computed in float32.
    """
    return _one_pass_mish(x)
