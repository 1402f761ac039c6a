"""Attention with all its scores at once, whose weights are kept."""

from typing import NamedTuple

import tensorflow as tf

from keras_fastgrad.gradients.attention_dropout import Draws
from keras_fastgrad.gradients.attention_scores import (
    Beside,
    Kind,
    passes_of,
    summed_to,
)
from keras_fastgrad.gradients.compiled import wide


class Operands(NamedTuple):
    """What attention is computed of.

    Args:
        query: Of shape `[batch, heads, queries, features]`, scaled.
        key: Of shape `[batch, heads, keys, features]`.
        value: Of shape `[batch, heads, keys, features]`.
        mask: Booleans that broadcast to `[batch, heads, queries, keys]` and
            have its rank, or `None`.
        bias: The same, numbers.
        first: The place of the first query among the keys.
        draws: Which of the weights dropout keeps, or `None`.
        kind: What the passes over scores do.
    """

    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    mask: tf.Tensor | None
    bias: tf.Tensor | None
    first: int
    draws: Draws | None
    kind: Kind


class Gradients(NamedTuple):
    """The gradients of the operands of the same names."""

    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    bias: tf.Tensor | None


class Whole(NamedTuple):
    """What the way back needs of the way there."""

    outputs: tf.Tensor
    weights: tf.Tensor
    dropped: tf.Tensor
    beside: Beside


def attend(of: Operands) -> Whole:
    """Works out `outputs`, of shape `[batch, heads, queries, features]`."""
    scores = tf.matmul(of.query, of.key, transpose_b=True)
    keep = None
    if of.draws is not None:
        keep = of.draws.part(0, tf.unstack(tf.shape(scores)))
        keep.set_shape(scores.shape)
    beside = Beside(tf.constant(of.first), of.mask, of.bias, keep)
    passes = passes_of(of.kind)
    weights, *_ = passes.weights(scores, beside.first, of.mask, of.bias)
    dropped = weights if keep is None else passes.dropped(weights, keep)
    return Whole(tf.matmul(dropped, of.value), weights, dropped, beside)


def differentiate(of: Operands, made: Whole, upstream: tf.Tensor) -> Gradients:
    """The gradients, from that of the outputs."""
    beside = made.beside
    slopes = passes_of(of.kind).slopes(
        made.weights,
        tf.matmul(upstream, of.value, transpose_b=True),
        row_means(upstream, made.outputs),
        beside.first,
        beside.mask,
        beside.keep,
    )
    return Gradients(
        tf.matmul(slopes, of.key),
        tf.matmul(slopes, of.query, transpose_a=True),
        tf.matmul(made.dropped, upstream, transpose_a=True),
        None if of.bias is None else summed_to(slopes, of.bias),
    )


def row_means(upstream: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """The weighted mean of each row's gradient, as `[..., queries, 1]`."""
    above, own = wide(upstream, outputs)
    return tf.reduce_sum(above * own, -1, keepdims=True)
