"""Attention in the way that fits its size, at once or in blocks."""

import functools
from collections.abc import Callable

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording
from keras_fastgrad.gradients import attention_blocks, attention_whole
from keras_fastgrad.gradients.attention_blocks import Cut
from keras_fastgrad.gradients.attention_whole import Operands
from keras_fastgrad.gradients.first_order import first_order_only

# Scores of a sample up to which they are held at once.
_MOST = 1 << 20
# With dropout, whose random numbers a block has to draw again.
_MOST_DROPPED = 1 << 23
# Queries that see the same keys, where each sees those up to its own place.
_SEGMENT = 256
# Each length is compiled of its own.
_SEGMENTS = 8


def attended(of: Operands, block_size: int | None) -> tf.Tensor:
    """The outputs, of shape `[batch, heads, queries, features]`.

    Args:
        of: What attention is computed of.
        block_size: As of `attention`.
    """
    parts = [_differentiable(each, block_size) for each in _segments(of)]
    return parts[0] if len(parts) == 1 else tf.concat(parts, 2)


def _segments(of: Operands) -> list[Operands]:
    """Parts of the queries, each with the keys that one of them sees."""
    length = of.query.shape[2]
    beside = of.mask, of.bias, of.draws
    if (
        not of.kind.is_causal
        or any(each is not None for each in beside)
        or length is None
        or length != of.key.shape[2]
    ):
        return [of]
    number = max(min(length // _SEGMENT, _SEGMENTS), 1)
    size = -(-length // number)
    return [
        of._replace(
            query=of.query[:, :, first : first + size],
            key=of.key[:, :, : first + size],
            value=of.value[:, :, : first + size],
            first=first,
        )
        for first in range(0, length, size)
    ]


def _differentiable(of: Operands, block_size: int | None) -> tf.Tensor:
    sources = [of.query, of.key, of.value]
    sources += [] if of.bias is None else [of.bias]
    attend, differentiate = _ways(of, block_size)

    @tf.custom_gradient
    def op(*sources: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        with stop_recording():
            made = attend(of)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            with stop_recording():
                found = differentiate(of, made=made, upstream=upstream)
            return first_order_only(
                "attention", found[: len(sources)], (*sources, upstream)
            )

        return tf.stop_gradient(made.outputs), gradient

    return op(*sources)


def _ways(of: Operands, block_size: int | None) -> tuple[Callable, Callable]:
    """The way there and the way back, at once or in blocks."""
    _, heads, queries, _ = of.query.shape
    keys = of.key.shape[2]
    planes = [each.shape[1:] for each in (of.mask, of.bias) if each is not None]
    is_known = all(None not in sizes for sizes in ((queries, keys), *planes))
    most = block_size or (_MOST if of.draws is None else _MOST_DROPPED)
    if not is_known or heads * queries * keys <= most:
        return attention_whole.attend, attention_whole.differentiate
    cut = Cut.of(heads, queries, keys, block_size or _MOST)
    return (
        functools.partial(attention_blocks.attend, cut=cut),
        functools.partial(attention_blocks.differentiate, cut=cut),
    )
