"""A recurrent loop whose backward pass is written by hand.

Automatic differentiation of a loop adds up the gradient of each weight in
every time step. Here the forward loop keeps what the gates came to, the
backward loop goes through time with the states' gradients alone, and each
weight gets its gradient from one product over all samples and times
(Graves, Supervised Sequence Labelling with Recurrent Neural Networks, 2012,
section 3.1.4). Each loop is compiled by XLA, as one function for all layers
of a kind: a step in it costs its arithmetic, where a TensorFlow loop adds
the cost of every operation in it.
"""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from keras_fastgrad._keras import xla_works

# Of a step: tensors of shape `[batch, units]`; of all steps: with a time axis
# in front.
States = tuple[tf.Tensor, ...]
Weights = tuple[tf.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One time step forwards and backwards, with what a loop needs of it.

    Args:
        forward: `forward(x, states, weights)`: a step. Of the inputs times
            their kernel, `[batch, gates]`, the states before it and the
            recurrent weights: the states after it, the output first, and the
            tensors that the way back needs.
        backward: `backward(upstream, kept, before, after, turned)`: the way
            back. Of the gradients of the states after the step, what
            `forward` kept, the states before and after the step, and `turned`
            weights: the gradients before the activations, `[batch, parts]`,
            and those of the states before the step.
        turned: `turned(weights)`: the weights as `backward` wants them, which
            is transposed: XLA's product with a transposed factor is slower.
        of_inputs: `of_inputs(parts)`: the gradient of `x`, for all steps at
            once, `[steps * batch, gates]`.
        of_weights: `of_weights(parts, kept, before)`: the gradients of the
            weights, for all steps at once, each `[steps * batch, ...]`.
    """

    forward: Callable[[tf.Tensor, States, Weights], tuple[States, States]]
    backward: Callable[..., tuple[tf.Tensor, States]]
    turned: Callable[[Weights], Weights]
    of_inputs: Callable[[tf.Tensor], tf.Tensor]
    of_weights: Callable[[tf.Tensor, States, States], Weights]


def run(
    cell: Cell,
    x: tf.Tensor,
    initial: States,
    weights: Weights,
    mask: tf.Tensor | None,
) -> tuple[tf.Tensor, States]:
    """Runs `cell` over time.

    Args:
        cell: The step.
        x: Inputs times their kernel, of shape `[steps, batch, gates]`.
        initial: States before the first step, `[batch, units]` each.
        weights: The recurrent weights.
        mask: Booleans of shape `[steps, batch, 1]`; where `False`, a sample
            keeps its states. `None` where there are none.

    Returns:
        The first state after each step, `[steps, batch, units]`, and all
        states after the last.
    """
    forward, backward = _loops(cell)
    masks = () if mask is None else (tf.cast(mask, x.dtype),)

    @tf.custom_gradient
    def through_time(
        x: tf.Tensor, initial: States, weights: Weights
    ) -> tuple[tuple[tf.Tensor, States], Callable]:
        last, states, kept = forward(x, initial, weights, masks)

        def gradient(of_outputs: tf.Tensor, *of_last: tf.Tensor) -> tuple:
            @tf.custom_gradient
            def first_order(
                of_outputs: tf.Tensor, *of_last: tf.Tensor
            ) -> tuple[tuple, Callable]:
                parts, of_initial = backward(
                    of_outputs,
                    of_last,
                    kept,
                    initial,
                    states,
                    cell.turned(weights),
                    masks,
                )
                before = tuple(
                    _merged(tf.concat([start[None], state[:-1]], 0))
                    for start, state in zip(initial, states)
                )
                merged = tuple(map(_merged, kept))
                of_weights = cell.of_weights(_merged(parts), merged, before)
                of_x = tf.reshape(cell.of_inputs(_merged(parts)), tf.shape(x))
                return (of_x, of_initial, of_weights), _no_second_derivative

            return first_order(of_outputs, *of_last)

        return (states[0], last), gradient

    return through_time(x, initial, weights)


def _merged(tensor: tf.Tensor) -> tf.Tensor:
    """Steps and samples as one axis."""
    return tf.reshape(tensor, [-1, tensor.shape[-1]])


def _no_second_derivative(*upstream: tf.Tensor) -> None:
    raise NotImplementedError(
        "The fast gradient of a recurrent layer has no derivative of its own. "
        "Received: a second derivative through it. Compile with "
        "fastgrad=Strategy(gradients='keras') to take Keras's gradient."
    )


@functools.cache
def _loops(cell: Cell) -> tuple[Callable, Callable]:
    # One compiled function for all layers of a kind, so that two layers of
    # one shape are compiled once.
    loops = _forward_loop(cell), _backward_loop(cell)
    if not xla_works():
        return loops
    forward, backward = (
        tf.function(loop, jit_compile=True, autograph=False) for loop in loops
    )
    return forward, backward


def _forward_loop(cell: Cell) -> Callable:
    def forward(
        x: tf.Tensor, initial: States, weights: Weights, masks: tuple
    ) -> tuple[States, States, States]:
        steps = tf.shape(x)[0]

        def one(time: tf.Tensor, states: States) -> tuple[States, States]:
            new, kept = cell.forward(x[time], states, weights)
            for mask in masks:
                new = tuple(
                    mask[time] * after + (1 - mask[time]) * before
                    for after, before in zip(new, states)
                )
            return new, kept

        def step(time: tf.Tensor, states: States, arrays: tuple) -> tuple:
            new, kept = one(time, states)
            written = tuple(
                array.write(time, value)
                for array, value in zip(arrays, (*new, *kept))
            )
            return time + 1, new, written

        number = len(initial) + len(one(tf.constant(0), initial)[1])
        arrays = tuple(tf.TensorArray(x.dtype, steps) for _ in range(number))
        _, last, arrays = tf.while_loop(
            lambda time, *_: time < steps, step, (0, initial, arrays)
        )
        stacks = tuple(array.stack() for array in arrays)
        return last, stacks[: len(initial)], stacks[len(initial) :]

    return forward


def _backward_loop(cell: Cell) -> Callable:
    def backward(
        of_outputs: tf.Tensor,
        of_last: States,
        kept: States,
        initial: States,
        states: States,
        turned: Weights,
        masks: tuple,
    ) -> tuple[tf.Tensor, States]:
        steps = tf.shape(of_outputs)[0]
        array = tf.TensorArray(of_outputs.dtype, steps)

        def step(
            time: tf.Tensor, upstream: States, array: tf.TensorArray
        ) -> tuple:
            upstream = (upstream[0] + of_outputs[time], *upstream[1:])
            own = upstream
            for mask in masks:
                own = tuple(mask[time] * each for each in upstream)
            parts, below = cell.backward(
                own,
                tuple(each[time] for each in kept),
                tuple(
                    tf.where(time > 0, state[tf.maximum(time - 1, 0)], start)
                    for state, start in zip(states, initial)
                ),
                tuple(state[time] for state in states),
                turned,
            )
            for mask in masks:
                below = tuple(
                    each + (1 - mask[time]) * skipped
                    for each, skipped in zip(below, upstream)
                )
            return time - 1, below, array.write(time, parts)

        _, below, array = tf.while_loop(
            lambda time, *_: time >= 0, step, (steps - 1, of_last, array)
        )
        return array.stack(), below

    return backward
