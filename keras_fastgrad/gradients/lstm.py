"""LSTM with a backward pass of its own."""

from collections.abc import Sequence

import tensorflow as tf

from keras_fastgrad.gradients.recurrent import Cell, States, Weights
from keras_fastgrad.gradients.recurrent_batch import Layer, over_time


# Gates, in Keras's order (Hochreiter and Schmidhuber, 1997, with the forget
# gate of Gers, Schmidhuber and Cummins, 2000):
#   i, f, o = sigmoid(z_i, z_f, z_o),  g = tanh(z_g),  z = x + h U
#   c' = f c + i g,  h' = o tanh(c').
# With dh', dc' from above and T = tanh(c'):
#   dc = dc' + dh' o (1 - T^2)          dz_o = dh' T o (1 - o)
#   dz_i = dc g i (1 - i)               dz_f = dc c f (1 - f)
#   dz_g = dc i (1 - g^2)
#   dx = dz,  dh = dz U^T,  dc_before = dc f,  dU = h^T dz.
def _forward(
    x: tf.Tensor, states: States, weights: Weights
) -> tuple[States, States]:
    h, c = states
    z_i, z_f, z_g, z_o = tf.split(x + tf.matmul(h, weights[0]), 4, 1)
    i, f, o = tf.sigmoid(z_i), tf.sigmoid(z_f), tf.sigmoid(z_o)
    g = tf.tanh(z_g)
    c = f * c + i * g
    return (o * tf.tanh(c), c), (i, f, g, o)


def _backward(
    upstream: States,
    kept: States,
    before: States,
    after: States,
    turned: Weights,
) -> tuple[tf.Tensor, States]:
    (dh, dc), (i, f, g, o) = upstream, kept
    top = tf.tanh(after[1])
    dc += dh * o * (1 - top * top)
    dz = tf.concat(
        [
            dc * g * i * (1 - i),
            dc * before[1] * f * (1 - f),
            dc * i * (1 - g * g),
            dh * top * o * (1 - o),
        ],
        1,
    )
    return dz, (tf.matmul(dz, turned[0]), dc * f)


def _turned(weights: Weights) -> Weights:
    return (tf.transpose(weights[0]),)


def _of_inputs(parts: tf.Tensor) -> tf.Tensor:
    return parts


def _of_weights(parts: tf.Tensor, kept: States, before: States) -> Weights:
    return (tf.matmul(before[0], parts, transpose_a=True),)


# Its states are the output h and the carry c.
CELL = Cell(_forward, _backward, _turned, _of_inputs, _of_weights)


def lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor | None = None,
    *,
    initial_state: Sequence[tf.Tensor] | None = None,
    mask: tf.Tensor | None = None,
    go_backwards: bool = False,
    return_sequences: bool = True,
) -> tuple[tf.Tensor, States]:
    """An LSTM over time, with the activations tanh and sigmoid.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import lstm
    >>> outputs, (h, c) = lstm(tf.ones((2, 5, 3)), tf.ones((3, 16)),
    ...                        tf.ones((4, 16)), tf.zeros(16))
    >>> outputs.shape, h.shape
    (TensorShape([2, 5, 4]), TensorShape([2, 4]))

    Args:
        inputs: Tensor of shape `[batch, steps, features]`.
        kernel: Tensor of shape `[features, 4 * units]`, the gates in Keras's
            order: input, forget, candidate, output.
        recurrent_kernel: Tensor of shape `[units, 4 * units]`.
        bias: Tensor of shape `[4 * units]`. Defaults to `None`.
        initial_state: Output and carry before the first step, of shape
            `[batch, units]` each. Defaults to zeros.
        mask: Booleans of shape `[batch, steps]`; where `False`, a sample
            keeps its states. Defaults to `None`.
        go_backwards: Begin at the last step. Defaults to `False`.
        return_sequences: Return the output of each step, not the last one
            alone. Defaults to `True`.

    Returns:
        The output after each step, `[batch, steps, units]`, in the order in
        which they are made, or after the last, `[batch, units]`; and `(h, c)`
        after the last.
    """
    order = go_backwards, return_sequences
    layer = Layer(CELL, kernel, bias, (recurrent_kernel,), *order)
    initial = None if initial_state is None else tuple(initial_state)
    return over_time(layer, inputs, initial, 2, mask)
