"""Puts the recurrent ops into Keras's LSTM and GRU layers.

Keras's own `call` goes on deciding initial states, stateful layers, what is
returned and in which order; the loop over time is what is replaced.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad.gradients.gru import gru
from keras_fastgrad.gradients.lstm import lstm
from keras_fastgrad.gradients.rewrite import Attributes, LayerRewrite

Op = Callable[..., tuple[tf.Tensor, tuple[tf.Tensor, ...]]]


def rewrite_of(
    name: str, layer_type: type, cell_type: Any, op: Op
) -> LayerRewrite:
    """The rewrite that gives `layer_type` the op.

    Args:
        name: The op's name.
        layer_type: `keras.layers.LSTM` or `keras.layers.GRU`.
        cell_type: The layer's cell.
        op: `lstm` or `gru`.
    """

    def find(layer: keras.layers.Layer) -> Attributes | str | None:
        if not isinstance(layer, layer_type):
            return None
        reason = _refusal(layer, layer_type, cell_type)
        if reason:
            return reason
        return {"inner_loop": _inner_loop(layer, op)}

    return LayerRewrite(name, find)


def _refusal(layer: Any, layer_type: Any, cell_type: Any) -> str | None:
    kind, cell = type(layer), layer.cell
    if kind.call is not layer_type.call or (
        kind.inner_loop is not layer_type.inner_loop
    ):
        return f"{kind.__name__} has a `call` or `inner_loop` of its own"
    if type(cell) is not cell_type:
        return f"its cell is a {type(cell).__name__}"
    if cell.activation is not keras.activations.tanh or (
        cell.recurrent_activation is not keras.activations.sigmoid
    ):
        return "its activations are not tanh and sigmoid"
    if cell.implementation != 2:
        return "recurrent dropout draws a mask for each gate"
    if layer.use_cudnn is True or tf.config.list_physical_devices("GPU"):
        return "Keras takes cuDNN for it where there is a GPU"
    return None


def _inner_loop(layer: Any, op: Op) -> Callable:
    def inner_loop(
        sequences: tf.Tensor,
        initial_state: Any,
        mask: Any,
        training: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        cell = layer.cell
        if training and 0.0 < cell.dropout < 1.0:
            drop = cell.get_dropout_mask(sequences[:, 0, :])
            sequences = sequences * tf.expand_dims(drop, 1)
        outputs, states = op(
            sequences,
            tf.convert_to_tensor(cell.kernel),
            tf.convert_to_tensor(cell.recurrent_kernel),
            None if cell.bias is None else tf.convert_to_tensor(cell.bias),
            initial_state=keras.tree.flatten(initial_state),
            mask=mask,
            go_backwards=layer.go_backwards,
            return_sequences=layer.return_sequences,
            **({"reset_after": cell.reset_after} if op is gru else {}),
        )
        if mask is not None:
            outputs = _as_masked(outputs, mask, layer)
        if layer.return_sequences:
            return outputs[:, -1], outputs, list(states)
        return outputs, tf.expand_dims(outputs, 1), list(states)

    return inner_loop


def _as_masked(outputs: tf.Tensor, mask: Any, layer: Any) -> tf.Tensor:
    # Keras repeats the last output where a step is masked, not the state:
    # before the first step that is not, there is none, and it gives zeros.
    mask = tf.cast(mask, tf.bool)
    if layer.go_backwards:
        mask = tf.reverse(mask, [1])
    if not layer.zero_output_for_mask:
        mask = tf.cumsum(tf.cast(mask, tf.int32), axis=1) > 0
    if not layer.return_sequences:
        mask = mask[:, -1]
    return tf.where(tf.expand_dims(mask, -1), outputs, tf.zeros_like(outputs))


RECURRENT = (
    rewrite_of("lstm", keras.layers.LSTM, keras.layers.LSTMCell, lstm),
    rewrite_of("gru", keras.layers.GRU, keras.layers.GRUCell, gru),
)
