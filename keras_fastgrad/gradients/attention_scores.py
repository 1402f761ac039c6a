"""The elementwise passes of attention over scores, whole or a block."""

import functools
from typing import NamedTuple

import tensorflow as tf

from keras_fastgrad.gradients.compiled import Compiled, wide

# What a score that does not count becomes: so that a query which sees nothing
# attends to all keys alike, as in Keras, instead of dividing zero by zero.
_FAR = -0.7 * 3.38953e38


class Kind(NamedTuple):
    """What the passes do; a key of the compiled functions.

    Args:
        is_causal: Whether a query sees no key after its own place.
        rate: Share of the weights that dropout leaves out.
    """

    is_causal: bool
    rate: float


class Beside(NamedTuple):
    """What stands beside scores of shape `[..., queries, keys]`.

    Args:
        first: The place of the first query, an integer tensor.
        mask: Booleans that broadcast to the scores, or `None`.
        bias: Numbers that broadcast to the scores, or `None`.
        keep: Booleans of the shape of the scores, where dropout keeps a
            weight, or `None`.
    """

    first: tf.Tensor
    mask: tf.Tensor | None
    bias: tf.Tensor | None
    keep: tf.Tensor | None


class Passes(NamedTuple):
    """The compiled passes of a kind.

    Args:
        weights: Of scores, first, mask and bias: the weights, and of each row
            the highest logit and one over the sum of the powers.
        dropped: Of weights and keep: the weights after dropout.
        slopes: Of weights, their gradient after dropout, the row's mean,
            first, mask and keep: the gradient of the scores.
        again: Of scores, gradient after dropout, mean, highest logit, inverse
            sum and what stands beside: the weights after dropout and the
            gradient of the scores.
    """

    weights: Compiled
    dropped: Compiled
    slopes: Compiled
    again: Compiled


# With s the scores q . k, taken over the scaled queries, b the bias, and
# d = keep / (1 - rate) what dropout multiplies with (Vaswani et al., Attention
# Is All You Need, 2017):
#   p = softmax(s + b),  w = d p,  o = w v.
# From above comes do, so dw = do v^T and
#   ds = p (d dw - m)  with  m = sum_j p_j d_j dw_j = do . o,
# which needs o alone (Dao et al., FlashAttention, 2022, section 3.1); it holds
# with dropout since w dw = p d dw. Then
#   dq = ds k,  dk = ds^T q,  dv = w^T do,  db = ds.
# The largest logit t and r = 1 / sum exp(s + b - t) give p = exp(s + b - t) r
# again. A score that is masked is a constant: ds = 0, also in a row without
# any other, whose p is 1 / keys.
def _seen(
    scores: tf.Tensor, first: tf.Tensor, mask: tf.Tensor | None, kind: Kind
) -> tf.Tensor | None:
    if not kind.is_causal:
        return mask
    queries, keys = tf.shape(scores)[-2], tf.shape(scores)[-1]
    before = tf.range(keys) <= tf.range(queries)[:, None] + first
    return before if mask is None else mask & before


def _logits(
    scores: tf.Tensor,
    first: tf.Tensor,
    mask: tf.Tensor | None,
    bias: tf.Tensor | None,
    kind: Kind,
) -> tf.Tensor:
    (logits,) = wide(scores)
    if bias is not None:
        logits += tf.cast(bias, logits.dtype)
    seen = _seen(scores, first, mask, kind)
    if seen is None:
        return logits
    return tf.where(seen, logits, tf.constant(_FAR, logits.dtype))


def _weights(
    scores: tf.Tensor,
    first: tf.Tensor,
    mask: tf.Tensor | None,
    bias: tf.Tensor | None,
    kind: Kind,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    logits = _logits(scores, first, mask, bias, kind)
    top = tf.reduce_max(logits, -1, keepdims=True)
    powers = tf.exp(logits - top)
    inverse = 1 / tf.reduce_sum(powers, -1, keepdims=True)
    return tf.cast(powers * inverse, scores.dtype), top, inverse


def _dropped(
    weights: tf.Tensor, keep: tf.Tensor | None, kind: Kind
) -> tf.Tensor:
    if keep is None:
        return weights
    kept = weights * (1 / (1 - kind.rate))
    return tf.where(keep, kept, tf.zeros((), kept.dtype))


def _slopes(
    weights: tf.Tensor,
    upstream: tf.Tensor,
    mean: tf.Tensor,
    first: tf.Tensor,
    mask: tf.Tensor | None,
    keep: tf.Tensor | None,
    kind: Kind,
) -> tf.Tensor:
    broad, above = wide(weights, upstream)
    slopes = broad * (_dropped(above, keep, kind) - mean)
    if mask is not None:
        seen = _seen(weights, first, mask, kind)
        slopes = tf.where(seen, slopes, tf.zeros((), slopes.dtype))
    return tf.cast(slopes, upstream.dtype)


def _again(
    scores: tf.Tensor,
    upstream: tf.Tensor,
    mean: tf.Tensor,
    top: tf.Tensor,
    inverse: tf.Tensor,
    first: tf.Tensor,
    mask: tf.Tensor | None,
    bias: tf.Tensor | None,
    keep: tf.Tensor | None,
    kind: Kind,
) -> tuple[tf.Tensor, tf.Tensor]:
    logits = _logits(scores, first, mask, bias, kind)
    weights = tf.exp(logits - top) * inverse
    slopes = _slopes(weights, upstream, mean, first, mask, keep, kind)
    return tf.cast(_dropped(weights, keep, kind), scores.dtype), slopes


@functools.cache
def passes_of(kind: Kind) -> Passes:
    """The passes of a kind, made once."""
    return Passes(
        *(
            Compiled(functools.partial(each, kind=kind))
            for each in (_weights, _dropped, _slopes, _again)
        )
    )


def summed_to(slopes: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """`slopes` summed over the axes along which `like` was repeated.

    The first axis of `like` may have an unknown size.
    """
    axes = [
        axis
        for axis in range(1, like.shape.rank)
        if like.shape[axis] == 1 and slopes.shape[axis] != 1
    ]
    slopes = tf.reduce_sum(slopes, axes, keepdims=True)
    times = [-1, tf.shape(like)[0], *slopes.shape[1:]]
    summed = tf.reduce_sum(tf.reshape(slopes, times), 0)
    return tf.reshape(tf.cast(summed, like.dtype), tf.shape(like))
