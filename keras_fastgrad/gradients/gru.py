"""GRU with a backward pass of its own, with either place of the reset gate."""

from collections.abc import Sequence

import tensorflow as tf

from keras_fastgrad.gradients.recurrent import Cell, States, Weights
from keras_fastgrad.gradients.recurrent_batch import Layer, over_time


# Gates, in Keras's order (Cho et al., 2014), the reset gate after the product
# as in cuDNN:
#   z, r = sigmoid(x_z + u_z, x_r + u_r),  u = h U + b
#   g = tanh(x_g + r u_g),  h' = z h + (1 - z) g.
# With dh' from above:
#   da_z = dh' (h - g) z (1 - z)       da_g = dh' (1 - z) (1 - g^2)
#   da_r = da_g u_g r (1 - r)          du = (da_z, da_r, da_g r)
#   dx = (da_z, da_r, da_g),  dh = dh' z + du U^T,  dU = h^T du,  db = sum du.
def _after_forward(
    x: tf.Tensor, states: States, weights: Weights
) -> tuple[States, States]:
    (h,), (kernel, bias) = states, weights
    x_z, x_r, x_g = tf.split(x, 3, 1)
    u_z, u_r, u_g = tf.split(tf.matmul(h, kernel) + bias, 3, 1)
    z, r = tf.sigmoid(x_z + u_z), tf.sigmoid(x_r + u_r)
    g = tf.tanh(x_g + r * u_g)
    return (z * h + (1 - z) * g,), (z, r, g, u_g)


def _after_backward(
    upstream: States,
    kept: States,
    before: States,
    after: States,
    turned: Weights,
) -> tuple[tf.Tensor, States]:
    (dh,), (h,), (z, r, g, u_g) = upstream, before, kept
    da_z = dh * (h - g) * z * (1 - z)
    da_g = dh * (1 - z) * (1 - g * g)
    da_r = da_g * u_g * r * (1 - r)
    du = tf.concat([da_z, da_r, da_g * r], 1)
    below = dh * z + tf.matmul(du, turned[0])
    return tf.concat([du, da_g], 1), (below,)


def _after_turned(weights: Weights) -> Weights:
    return (tf.transpose(weights[0]),)


def _after_of_inputs(parts: tf.Tensor) -> tf.Tensor:
    da_z, da_r, _, da_g = tf.split(parts, 4, 1)
    return tf.concat([da_z, da_r, da_g], 1)


def _after_of_weights(
    parts: tf.Tensor, kept: States, before: States
) -> Weights:
    du = parts[:, : 3 * (parts.shape[1] // 4)]
    of_kernel = tf.matmul(before[0], du, transpose_a=True)
    return of_kernel, tf.reduce_sum(du, 0)


RESET_AFTER = Cell(
    _after_forward,
    _after_backward,
    _after_turned,
    _after_of_inputs,
    _after_of_weights,
)


# The reset gate before the product:
#   z, r = sigmoid(x_z + h U_z, x_r + h U_r),  g = tanh(x_g + (r h) U_g).
#   da_z, da_g as above,  dp = da_g U_g^T,  da_r = dp h r (1 - r)
#   dh = dh' z + (da_z, da_r) (U_z, U_r)^T + dp r,  dU_g = (r h)^T da_g.
def _before_forward(
    x: tf.Tensor, states: States, weights: Weights
) -> tuple[States, States]:
    (h,), (kernel,) = states, weights
    units = h.shape[1]
    x_z, x_r, x_g = tf.split(x, 3, 1)
    u_z, u_r = tf.split(tf.matmul(h, kernel[:, : 2 * units]), 2, 1)
    z, r = tf.sigmoid(x_z + u_z), tf.sigmoid(x_r + u_r)
    g = tf.tanh(x_g + tf.matmul(r * h, kernel[:, 2 * units :]))
    return (z * h + (1 - z) * g,), (z, r, g)


def _before_backward(
    upstream: States,
    kept: States,
    before: States,
    after: States,
    turned: Weights,
) -> tuple[tf.Tensor, States]:
    (dh,), (h,), (z, r, g) = upstream, before, kept
    da_z = dh * (h - g) * z * (1 - z)
    da_g = dh * (1 - z) * (1 - g * g)
    dp = tf.matmul(da_g, turned[1])
    gates = tf.concat([da_z, dp * h * r * (1 - r)], 1)
    below = dh * z + dp * r + tf.matmul(gates, turned[0])
    return tf.concat([gates, da_g], 1), (below,)


def _before_turned(weights: Weights) -> Weights:
    units = weights[0].shape[0]
    kernel = tf.transpose(weights[0])
    return kernel[: 2 * units], kernel[2 * units :]


def _before_of_inputs(parts: tf.Tensor) -> tf.Tensor:
    return parts


def _before_of_weights(
    parts: tf.Tensor, kept: States, before: States
) -> Weights:
    (h,), (_, r, _) = before, kept
    units = h.shape[1]
    of_gates = tf.matmul(h, parts[:, : 2 * units], transpose_a=True)
    of_g = tf.matmul(r * h, parts[:, 2 * units :], transpose_a=True)
    return (tf.concat([of_gates, of_g], 1),)


RESET_BEFORE = Cell(
    _before_forward,
    _before_backward,
    _before_turned,
    _before_of_inputs,
    _before_of_weights,
)


def gru(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor | None = None,
    *,
    initial_state: Sequence[tf.Tensor] | None = None,
    mask: tf.Tensor | None = None,
    go_backwards: bool = False,
    return_sequences: bool = True,
    reset_after: bool = True,
) -> tuple[tf.Tensor, States]:
    """A GRU over time, with the activations tanh and sigmoid.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import gru
    >>> outputs, (h,) = gru(tf.ones((2, 5, 3)), tf.ones((3, 12)),
    ...                     tf.ones((4, 12)), tf.zeros((2, 12)))
    >>> outputs.shape, h.shape
    (TensorShape([2, 5, 4]), TensorShape([2, 4]))

    Args:
        inputs: Tensor of shape `[batch, steps, features]`.
        kernel: Tensor of shape `[features, 3 * units]`, the gates in Keras's
            order: update, reset, candidate.
        recurrent_kernel: Tensor of shape `[units, 3 * units]`.
        bias: Tensor of shape `[2, 3 * units]`, for the inputs and for the
            states; of shape `[3 * units]` with `reset_after=False`. Defaults
            to `None`.
        initial_state: The state before the first step, `[batch, units]`, in a
            sequence of one. Defaults to zeros.
        mask: Booleans of shape `[batch, steps]`; where `False`, a sample
            keeps its state. Defaults to `None`.
        go_backwards: Begin at the last step. Defaults to `False`.
        return_sequences: Return the output of each step, not the last one
            alone. Defaults to `True`.
        reset_after: Whether the reset gate comes after the product with the
            state, as in cuDNN. Defaults to `True`.

    Returns:
        The state after each step, `[batch, steps, units]`, in the order in
        which they are made, or after the last, `[batch, units]`; and the
        state after the last in a tuple of one.
    """
    cell = RESET_BEFORE
    recurrent: Weights = (recurrent_kernel,)
    if reset_after:
        of_states = tf.zeros([kernel.shape[1]], kernel.dtype)
        if bias is not None:
            bias, of_states = bias[0], bias[1]
        cell, recurrent = RESET_AFTER, (recurrent_kernel, of_states)
    order = go_backwards, return_sequences
    layer = Layer(cell, kernel, bias, recurrent, *order)
    initial = None if initial_state is None else tuple(initial_state)
    return over_time(layer, inputs, initial, 1, mask)
