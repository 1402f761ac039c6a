"""Scaled dot-product attention with a backward pass of its own."""

import math

import tensorflow as tf

from keras_fastgrad.gradients.attention_dropout import Draws
from keras_fastgrad.gradients.attention_scores import Kind
from keras_fastgrad.gradients.attention_segments import attended
from keras_fastgrad.gradients.attention_whole import Operands


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    mask: tf.Tensor | None = None,
    bias: tf.Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    seed: tf.Tensor | None = None,
    block_size: int | None = None,
) -> tf.Tensor:
    """`softmax(scale * query @ key^T + bias) @ value`, for many heads.

    Scores of short sequences are worked out at once and their softmax is
    kept. Those of long ones are worked out in blocks and again on the way
    back, so that memory grows with the length, not with its square (Dao et
    al., FlashAttention, 2022). Scores that a causal mask hides from a whole
    block are not worked out. Where a size other than the batch is unknown,
    scores are worked out at once.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import attention
    >>> tokens = tf.constant([1.0, 3.0], shape=(1, 2, 1, 1))
    >>> query = tf.zeros((1, 2, 1, 1))
    >>> attention(query, query, tokens, is_causal=True)[0, :, 0, 0].numpy()
    array([1., 2.], dtype=float32)

    Args:
        query: Float tensor of shape `[batch, queries, heads, features]`.
        key: Float tensor of shape `[batch, keys, key_heads, features]`.
            `key_heads` divides `heads`; each serves as many queries' heads.
        value: Float tensor of shape `[batch, keys, key_heads, features]`;
            its features may be others.
        mask: Boolean tensor, `True` where a query sees a key, that broadcasts
            to `[batch, heads, queries, keys]`. A query that sees no key
            attends to all alike, as in Keras. Defaults to none.
        bias: Float tensor that broadcasts alike and is added to the scores.
            Defaults to none.
        is_causal: Whether the query at place i sees keys up to place i only.
            Defaults to `False`.
        scale: Factor of the scores. Defaults to `1 / sqrt(features)`.
        dropout_rate: Share of the weights that is left out, from 0 up to but
            not 1. Defaults to 0.
        seed: Two integers, needed with dropout, which leaves out the same
            weights as `tf.nn.experimental.stateless_dropout` with this seed.
        block_size: Most scores of a sample that are held at once; above it
            blocks of at most so many, and of 128 queries at least, are
            worked out one by one. Defaults to 1,048,576; with dropout, whose
            random numbers a block has to draw again, blocks begin above
            8,388,608.

    Returns:
        A tensor of shape `[batch, queries, heads, features of value]` in the
        dtype of `query`. In half precision products are; the softmax is in
        float32.

    Raises:
        ValueError: If shapes or options do not fit.
    """
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    key, value = (tf.cast(each, query.dtype) for each in (key, value))
    _check(query, key, value)
    _check_dropout(dropout_rate, seed)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    repeats = query.shape[2] // key.shape[2]
    if repeats > 1:
        key, value = (tf.repeat(each, repeats, 2) for each in (key, value))
    # The factor stands on the narrow side, and before the product, where
    # half precision has more room.
    query, key, value = map(_by_head, (query * scale, key, value))
    draws = None
    if dropout_rate:
        draws = Draws(tf.convert_to_tensor(seed), dropout_rate, query.dtype)
    of = Operands(
        query,
        key,
        value,
        None if mask is None else _plane(tf.cast(mask, tf.bool)),
        None if bias is None else _plane(tf.convert_to_tensor(bias)),
        first=0,
        draws=draws,
        kind=Kind(is_causal, dropout_rate),
    )
    return _by_head(attended(of, block_size))


def _by_head(tensor: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tensor, [0, 2, 1, 3])


def _plane(tensor: tf.Tensor) -> tf.Tensor:
    for _ in range(4 - tensor.shape.rank):
        tensor = tensor[None]
    return tensor


def _check(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> None:
    shapes = query.shape, key.shape, value.shape
    if any(shape.rank != 4 for shape in shapes) or (
        None in (query.shape[2], key.shape[2], query.shape[3])
        or query.shape[2] % key.shape[2]
        or query.shape[3] != key.shape[3]
        or not key.shape[:3].is_compatible_with(value.shape[:3])
    ):
        raise ValueError(
            "Shapes must be [batch, queries, heads, features] of the query, "
            "[batch, keys, key_heads, features] of the key, where key_heads "
            "divides heads, and [batch, keys, key_heads, any] of the value. "
            f"Received: {', '.join(map(str, shapes))}."
        )


def _check_dropout(rate: float, seed: tf.Tensor | None) -> None:
    if not 0 <= rate < 1 or (rate and seed is None):
        raise ValueError(
            "`dropout_rate` must be from 0 up to but not 1, and needs a "
            f"`seed`. Received: dropout_rate={rate}, seed={seed}."
        )
