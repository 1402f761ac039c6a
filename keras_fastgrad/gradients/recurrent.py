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
from typing import NamedTuple

import tensorflow as tf

from keras_fastgrad._tensorflow import (
    stop_recording,
    xla_works,
)

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
    return_sequences: bool,
) -> tuple[tf.Tensor, States]:
    """Runs `cell` over time.

    Args:
        cell: The step.
        x: Inputs times their kernel, of shape `[steps, batch, gates]`.
        initial: States before the first step, `[batch, units]` each.
        weights: The recurrent weights.
        mask: Booleans of shape `[steps, batch, 1]`; where `False`, a sample
            keeps its states. `None` where there are none.
        return_sequences: Whether the output of each step is wanted.

    Returns:
        The first state after each step, `[steps, batch, units]`, or after the
        last step, `[batch, units]`, and all states after the last step.
    """
    forward, _ = _loops(cell)
    masks = () if mask is None else (tf.cast(mask, x.dtype),)

    @tf.custom_gradient
    def through_time(
        x: tf.Tensor, initial: States, weights: Weights
    ) -> tuple[tuple[tf.Tensor, States], Callable]:
        with stop_recording():
            made = forward(x, initial, weights, masks)
        # Nothing may ask for the automatic gradient of the loop itself.
        last, states, kept = tf.nest.map_structure(tf.stop_gradient, made)

        def gradient(of_output: tf.Tensor, *of_last: tf.Tensor) -> tuple:
            @tf.custom_gradient
            def first_order(*upstream: tf.Tensor) -> tuple[tuple, Callable]:
                with stop_recording():
                    gradients = _gradients(
                        cell,
                        _Pass(initial, states, kept, weights, masks),
                        upstream[:1] if return_sequences else (),
                        upstream[1:],
                    )
                return gradients, _no_second_derivative

            if not return_sequences:
                of_last = (of_last[0] + of_output, *of_last[1:])
            return first_order(of_output, *of_last)

        return (states[0] if return_sequences else last[0], last), gradient

    return through_time(x, initial, weights)


class _Pass(NamedTuple):
    """What the way back needs of the way there."""

    initial: States
    states: States
    kept: States
    weights: Weights
    masks: States


def _gradients(
    cell: Cell, there: _Pass, of_outputs: States, of_last: States
) -> tuple[tf.Tensor, States, Weights]:
    parts, of_initial = _loops(cell)[1](
        of_outputs,
        of_last,
        there.kept,
        there.initial,
        there.states,
        cell.turned(there.weights),
        there.masks,
    )
    before = tuple(
        _merged(tf.concat([start[None], state[:-1]], 0))
        for start, state in zip(there.initial, there.states)
    )
    flat = _merged(parts)
    of_weights = cell.of_weights(flat, tuple(map(_merged, there.kept)), before)
    of_x = cell.of_inputs(flat)
    shape = tf.concat([tf.shape(parts)[:2], tf.shape(of_x)[1:]], 0)
    return tf.reshape(of_x, shape), of_initial, of_weights


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
        of_outputs: States,
        of_last: States,
        kept: States,
        initial: States,
        states: States,
        turned: Weights,
        masks: tuple,
    ) -> tuple[tf.Tensor, States]:
        steps = tf.shape(states[0])[0]
        array = tf.TensorArray(states[0].dtype, steps)

        def step(
            time: tf.Tensor, upstream: States, array: tf.TensorArray
        ) -> tuple:
            for each in of_outputs:
                upstream = (upstream[0] + each[time], *upstream[1:])
            own = upstream
            for mask in masks:
                own = tuple(mask[time] * part for part in upstream)
            parts, below = cell.backward(
                own,
                tuple(part[time] for part in kept),
                tuple(
                    tf.where(time > 0, state[tf.maximum(time - 1, 0)], start)
                    for state, start in zip(states, initial)
                ),
                tuple(state[time] for state in states),
                turned,
            )
            for mask in masks:
                below = tuple(
                    part + (1 - mask[time]) * skipped
                    for part, skipped in zip(below, upstream)
                )
            return time - 1, below, array.write(time, parts)

        _, below, array = tf.while_loop(
            lambda time, *_: time >= 0, step, (steps - 1, of_last, array)
        )
        return array.stack(), below

    return backward
