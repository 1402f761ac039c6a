"""Normalization of each sample, with one fused pass each way."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording
from keras_fastgrad.gradients.compiled import Compiled, wide


class _Kind(NamedTuple):
    """What is normalized, and how; a key of the compiled functions.

    `view` is the shape in which `axes` are normalized, with scale and offset
    over its last `learned` axes.
    """

    view: tuple[int, ...]
    axes: tuple[int, ...]
    learned: int
    is_centred: bool
    epsilon: float


# With m the mean and r = 1 / sqrt(var + epsilon) over the normalized axes
# (Ba, Kiros and Hinton, Layer Normalization, 2016):
#   h = (x - m) r,  y = h scale + offset.
# With d = dy scale, and the means over the same axes:
#   dx = r (d - mean(d) - h mean(d h)),  dscale = sum(dy h),  doffset = sum(dy).
# Where the mean is not taken off (Zhang and Sennrich, Root Mean Square Layer
# Normalization, 2019), m is 0 and mean(d) is left out.
def _forward(
    x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, kind: _Kind
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    (broad,) = wide(tf.reshape(x, kind.view))
    mean = tf.zeros((), broad.dtype)
    if kind.is_centred:
        mean = tf.reduce_mean(broad, kind.axes, keepdims=True)
        broad -= mean
    variance = tf.reduce_mean(broad * broad, kind.axes, keepdims=True)
    inverse = tf.math.rsqrt(variance + kind.epsilon)
    outputs = broad * inverse * scale + offset
    return tf.reshape(tf.cast(outputs, x.dtype), tf.shape(x)), mean, inverse


def _backward(
    x: tf.Tensor,
    upstream: tf.Tensor,
    scale: tf.Tensor,
    mean: tf.Tensor,
    inverse: tf.Tensor,
    kind: _Kind,
) -> tuple[tf.Tensor, tf.Tensor]:
    # The second part is what sums up to the gradient of the scale.
    broad, above = wide(
        tf.reshape(x, kind.view), tf.reshape(upstream, kind.view)
    )
    normal = (broad - mean) * inverse
    scaled = above * scale
    inner = scaled - normal * tf.reduce_mean(
        scaled * normal, kind.axes, keepdims=True
    )
    if kind.is_centred:
        inner -= tf.reduce_mean(scaled, kind.axes, keepdims=True)
    of_x = tf.reshape(tf.cast(inverse * inner, x.dtype), tf.shape(x))
    return of_x, above * normal


@functools.cache
def _passes(kind: _Kind) -> tuple[Compiled, Compiled]:
    return (
        Compiled(functools.partial(_forward, kind=kind)),
        Compiled(functools.partial(_backward, kind=kind)),
    )


def _normalized(
    x: tf.Tensor,
    scale: tf.Tensor | None,
    offset: tf.Tensor | None,
    kind: _Kind,
) -> tf.Tensor:
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    learned = kind.view[-kind.learned :]
    there, back = _passes(kind)

    def as_learned(values: tf.Tensor | None, default: float) -> tf.Tensor:
        if values is None:
            return tf.constant(default, dtype, learned)
        return tf.reshape(tf.cast(values, dtype), learned)

    @tf.custom_gradient
    def op(
        x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor
    ) -> tuple[tf.Tensor, Callable]:
        with stop_recording():
            made, mean, inverse = map(tf.stop_gradient, there(x, scale, offset))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            of_x, parts = back(x, upstream, scale, mean, inverse)
            return of_x, _summed(parts, learned), _summed(upstream, learned)

        return made, gradient

    return op(x, as_learned(scale, 1.0), as_learned(offset, 0.0))


def _summed(parts: tf.Tensor, learned: Sequence[int]) -> tf.Tensor:
    # As a product: oneDNN's runs at the speed of memory, a sum over rows not.
    rows = tf.reshape(*wide(parts), [-1, math.prod(learned)])
    ones = tf.ones([1, tf.shape(rows)[0]], rows.dtype)
    return tf.reshape(tf.matmul(ones, rows), learned)


def layer_norm(
    inputs: tf.Tensor,
    scale: tf.Tensor | None = None,
    offset: tf.Tensor | None = None,
    *,
    axes: int = 1,
    epsilon: float = 1e-3,
) -> tf.Tensor:
    """Layer normalization over the last axes.

    One fused pass each way, 1.2 to 2.1 times faster than Keras's chain above
    100,000 elements on a processor, level below 20,000.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import layer_norm
    >>> layer_norm(tf.constant([[1.0, 3.0]]), epsilon=0.0).numpy()
    array([[-1.,  1.]], dtype=float32)

    Args:
        inputs: Float tensor of shape `[..., features]`; the sizes of the
            normalized axes must be known.
        scale: Tensor of the shape of the normalized axes. Defaults to ones.
        offset: The same. Defaults to zeros.
        axes: How many axes are normalized, from the last. Defaults to 1.
        epsilon: Added to the variance. Defaults to 1e-3.

    Returns:
        A tensor like `inputs`. Half precision is computed in float32.
    """
    inputs = tf.convert_to_tensor(inputs)
    kind = _over_last(inputs, axes, True, epsilon)
    return _normalized(inputs, scale, offset, kind)


def rms_norm(
    inputs: tf.Tensor,
    scale: tf.Tensor | None = None,
    *,
    axes: int = 1,
    epsilon: float = 1e-6,
) -> tf.Tensor:
    """Root mean square normalization over the last axes.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import rms_norm
    >>> rms_norm(tf.constant([[3.0, 3.0]]), epsilon=0.0).numpy()
    array([[1., 1.]], dtype=float32)

    Args:
        inputs: Float tensor of shape `[..., features]`; the sizes of the
            normalized axes must be known.
        scale: Tensor of the shape of the normalized axes. Defaults to ones.
        axes: How many axes are normalized, from the last. Defaults to 1.
        epsilon: Added to the mean square. Defaults to 1e-6.

    Returns:
        A tensor like `inputs`. Half precision is computed in float32.
    """
    inputs = tf.convert_to_tensor(inputs)
    kind = _over_last(inputs, axes, False, epsilon)
    return _normalized(inputs, scale, None, kind)


def group_norm(
    inputs: tf.Tensor,
    groups: int,
    scale: tf.Tensor | None = None,
    offset: tf.Tensor | None = None,
    *,
    epsilon: float = 1e-3,
) -> tf.Tensor:
    """Group normalization, with the channels in the last axis.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import group_norm
    >>> group_norm(tf.constant([[1.0, 3.0, 5.0, 5.0]]), 2).numpy().round(2)
    array([[-1.,  1.,  0.,  0.]], dtype=float32)

    Args:
        inputs: Float tensor of shape `[batch, ..., channels]`; all sizes but
            the batch must be known.
        groups: Groups of channels (Wu and He, Group Normalization, 2018). It
            divides the channels.
        scale: Tensor of shape `[channels]`. Defaults to ones.
        offset: Tensor of shape `[channels]`. Defaults to zeros.
        epsilon: Added to the variance. Defaults to 1e-3.

    Returns:
        A tensor like `inputs`. Half precision is computed in float32.

    Raises:
        ValueError: If a size is unknown, or `groups` does not divide them.
    """
    inputs = tf.convert_to_tensor(inputs)
    _, *places, channels = _known(inputs, 1)
    if channels % groups:
        raise ValueError(
            "`groups` must divide the channels. "
            f"Received: groups={groups}, channels={channels}."
        )
    view = (-1, math.prod(places), groups, channels // groups)
    kind = _Kind(view, (1, 3), 2, True, epsilon)
    return _normalized(inputs, scale, offset, kind)


def _over_last(
    inputs: tf.Tensor, axes: int, is_centred: bool, epsilon: float
) -> _Kind:
    features = _known(inputs, inputs.shape.rank - axes)[-axes:]
    own = tuple(range(1, axes + 1))
    return _Kind((-1, *features), own, axes, is_centred, epsilon)


def _known(inputs: tf.Tensor, first: int) -> list[int]:
    sizes = inputs.shape.as_list()
    if None in sizes[first:]:
        raise ValueError(
            "The sizes that are normalized must be known. "
            f"Received: a tensor of shape {tuple(sizes)}."
        )
    return sizes
