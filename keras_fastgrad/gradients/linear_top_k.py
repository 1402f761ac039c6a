"""The likeliest classes of a linear layer, without its matrix of logits."""

from typing import NamedTuple

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording
from keras_fastgrad.gradients.chunks import Chunks
from keras_fastgrad.gradients.linear_head import LinearHead, logits_of


class TopK(NamedTuple):
    """The likeliest classes, the first first.

    Args:
        classes: Integer tensor of shape `[..., k]`.
        log_probabilities: Tensor of the same shape, in at least float32.
    """

    classes: tf.Tensor
    log_probabilities: tf.Tensor


def linear_top_k(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    k: int = 1,
    bias: tf.Tensor | None = None,
    *,
    soft_cap: float | None = None,
    is_transposed: bool = False,
    dtype: str | tf.DType | None = None,
    chunk_size: int | None = None,
) -> TopK:
    """The `k` likeliest classes of `softmax(inputs @ kernel + bias)`.

    Worked out for some tokens at a time, so that the logits of all tokens
    never exist at once. It has no gradient.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import linear_top_k
    >>> best = linear_top_k(tf.ones((1, 1)), tf.constant([[0.0, 2.0, 1.0]]), 2)
    >>> best.classes.numpy()
    array([[1, 2]], dtype=int32)

    Args:
        inputs: Float tensor of shape `[..., features]`.
        kernel: Float tensor of shape `[features, classes]`.
        k: How many classes, from 1 to all. Defaults to 1.
        bias: Tensor of shape `[classes]`. Defaults to none.
        soft_cap: Bound c of the logits, which become `c tanh(logits / c)`.
            Defaults to none.
        is_transposed: Whether `kernel` is `[classes, features]`. Defaults to
            `False`.
        dtype: What products are computed in. Defaults to that of `inputs`.
        chunk_size: Tokens at a time. Defaults to as many as the cache of the
            processor holds the logits of, and 128 or more.

    Returns:
        `classes` and `log_probabilities`, each of shape `[..., k]`.

    Raises:
        ValueError: If shapes do not fit, or there are less than `k` classes.
    """
    inputs = tf.convert_to_tensor(inputs)
    head = LinearHead.of(inputs, kernel, bias, is_transposed, dtype)
    features, classes = head.sizes
    if not 1 <= k <= classes:
        raise ValueError(
            f"`k` must be from 1 to the {classes} classes. Received: k={k}."
        )
    with stop_recording():
        flat = tf.cast(tf.reshape(inputs, [-1, features]), head.dtype)
        rows = head.rows()
        chunks = Chunks.of(flat, classes, chunk_size)
        (parts,) = chunks.cut(flat)

        def one(index: tf.Tensor, _: tuple) -> tuple[tuple, tuple]:
            products = tf.matmul(parts[index], rows)
            logits = logits_of(products, head.bias, soft_cap)
            best = tf.math.top_k(logits, k)
            total = tf.reduce_logsumexp(logits, -1, keepdims=True)
            return (best.indices, best.values - total), ()

        kept, _ = chunks.walk(one, (), (tf.int32, head.kernel.dtype))
        shape = tf.concat([tf.shape(inputs)[:-1], [k]], 0)
        static = [*inputs.shape[:-1], k]
        return TopK(
            *(
                tf.stop_gradient(
                    tf.ensure_shape(tf.reshape(each, shape), static)
                )
                for each in kept
            )
        )
