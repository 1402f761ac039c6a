"""Puts attention into Keras's MultiHeadAttention and GroupQueryAttention."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import next_seed
from keras_fastgrad.gradients.attention import attention
from keras_fastgrad.gradients.rewrite import Attributes, LayerRewrite, kept

_TYPES = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


def _replacement(layer: Any, plain: Callable) -> Callable:
    rate, scale = _options(layer)

    def compute(
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> tuple[Any, Any]:
        reason = None
        if return_attention_scores or _wants_scores(layer):
            reason = "its scores are asked for"
        elif len(query.shape) != 4:
            reason = "it attends over several axes"
        if reason:
            kept(layer, reason)
            options = {
                "return_attention_scores": return_attention_scores,
                "use_causal_mask": use_causal_mask,
            }
            asked = {name: True for name, value in options.items() if value}
            return plain(
                layer, query, key, value, attention_mask, training, **asked
            )
        mask = None if attention_mask is None else _plane(attention_mask, rate)
        dropped = rate if training else 0.0
        outputs = attention(
            query,
            key,
            value,
            mask,
            is_causal=use_causal_mask,
            scale=scale,
            dropout_rate=dropped,
            seed=next_seed(layer._dropout_layer) if dropped else None,
        )
        if rate and mask is not None:
            # Where Keras drops weights, a query that sees no key gets zeros.
            sees = tf.reduce_any(mask, -1, keepdims=True)
            sees = tf.transpose(sees, [0, 2, 1, 3])
            outputs = tf.where(sees, outputs, tf.zeros((), outputs.dtype))
        return outputs, None

    return compute


def _options(layer: Any) -> tuple[float, float]:
    """The dropout rate, and the factor of the scores."""
    if isinstance(layer, keras.layers.MultiHeadAttention):
        return layer._dropout, layer._inverse_sqrt_key_dim
    return layer.dropout, layer._inverse_sqrt_head_dim


def _wants_scores(layer: Any) -> bool:
    return getattr(layer, "_return_attention_scores", False)


def _plane(mask: Any, rate: float) -> tf.Tensor:
    """A mask of Keras as `[batch, heads, queries, keys]`."""
    mask = tf.convert_to_tensor(mask)
    if rate and mask.dtype != tf.bool:
        mask = mask > tf.cast(0.5, mask.dtype)
    while mask.shape.rank < 4:
        mask = tf.expand_dims(mask, -3)
    return tf.cast(mask, tf.bool)


def _find(layer: Any) -> Attributes | str | None:
    kind = next((each for each in _TYPES if isinstance(layer, each)), None)
    if kind is None:
        return None
    plain = kind._compute_attention
    if type(layer)._compute_attention is not plain:
        return f"{type(layer).__name__} has a `_compute_attention` of its own"
    if layer._flash_attention:
        return "flash attention is asked for"
    if _options(layer)[0] == 1:
        return "it drops all weights"
    return {"_compute_attention": _replacement(layer, plain)}


ATTENTION = LayerRewrite("attention", _find)
