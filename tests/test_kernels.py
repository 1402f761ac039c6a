"""Fused updates against Keras's own, on prescribed gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_fastgrad.optimizers.fused import fused_updates, no_kernel_reason
from keras_fastgrad.optimizers.kernels import share_kept
from keras_fastgrad.optimizers.row_sparse import (
    summed_gradients,
    with_unique_rows,
)

ADAM = keras.optimizers.Adam
RMSPROP = keras.optimizers.RMSprop


def apart(make, gradients, fused=True, dtype="float32"):
    """How far two updates end apart, relative to the distance moved.

    `gradients` has shape `[steps, size]`.
    """
    ends = []
    for context in (lambda optimizer: None, fused_updates):
        optimizer = make()
        variable = keras.Variable(
            np.zeros(gradients.shape[1]), dtype=dtype, name="w"
        )
        optimizer.build([variable])

        def step(gradient, optimizer=optimizer, variable=variable):
            optimizer.apply([gradient], [variable])

        def run(rows, step=step, context=context, optimizer=optimizer):
            entered = context(optimizer)
            if entered is None:
                loop(rows, step)
            else:
                with entered:
                    loop(rows, step)

        def loop(rows, step):
            tf.while_loop(
                lambda at: at < tf.shape(rows)[0],
                lambda at: (step(rows[at]), at + 1)[1],
                [tf.constant(0)],
            )

        tf.function(run, autograph=False)(tf.constant(gradients, dtype))
        ends.append(variable.numpy().astype("float64"))
    scale = np.abs(ends[0]).clip(1e-30)
    return float((np.abs(ends[0] - ends[1]) / scale).max())


def steady(steps):
    """Gradients from 1e-6 to 1e4 that never change."""
    return np.tile(10.0 ** np.arange(-6, 5), (steps, 1))


@pytest.mark.parametrize("steps", [1, 10, 1000, 20_000])
@pytest.mark.parametrize("beta_2", [0.9, 0.99, 0.999])
def test_adam_moves_as_keras_does(steps, beta_2):
    """Also long after the kernel's rounded 1 - beta_2 has lost its effect."""
    # A sum of 20,000 float32 steps has an error of its own.
    bound = 3e-6 if steps < 5000 else 3e-5
    assert apart(lambda: ADAM(1e-3, beta_2=beta_2), steady(steps)) < bound


def test_the_factor_of_a_rounded_beta_fades():
    """What the kernel's velocity lacks at first, it has made up in the end."""
    exact, rounded = 0.999, float(np.float32(0.999))
    for step in (1.0, 30.0, 1000.0, 30_000.0):
        factor = float(share_kept(exact, tf.constant(step)))
        wanted = (1 - rounded**step) / (1 - exact**step)
        assert factor == pytest.approx(wanted, abs=3e-7)
    assert 1 - float(share_kept(exact, tf.constant(1.0))) > 1e-5


@pytest.mark.parametrize(
    "make",
    [
        lambda: ADAM(1e-3, amsgrad=True),
        lambda: ADAM(1e-3, beta_1=0.99),
        lambda: ADAM(1e-3, beta_1=0.0),
        lambda: ADAM(1e-3, epsilon=1e-3),
        lambda: keras.optimizers.Adagrad(0.1),
        lambda: keras.optimizers.Adagrad(0.1, epsilon=1e-4),
        lambda: RMSPROP(1e-3),
        lambda: RMSPROP(1e-3, rho=0.999),
        lambda: RMSPROP(1e-3, momentum=0.9),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    ],
)
def test_changing_gradients(make):
    draw = np.random.default_rng(1)
    size = 10.0 ** draw.uniform(-3, 2, (300, 1))
    # All of one sign, so that the distance moved is not itself a rounding.
    gradients = size * np.abs(1 + draw.standard_normal((300, 40)))
    assert apart(make, gradients) < 2e-5


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: ADAM(beta_2=0.9999), "0.9999"),
        (lambda: ADAM(beta_2=1 - 1e-8), "0.99999999"),
        (lambda: RMSPROP(momentum=0.9, rho=0.9999), "0.9999"),
        (
            lambda: keras.optimizers.Adagrad(initial_accumulator_value=0.0),
            "0.0",
        ),
        (keras.optimizers.Nadam, "Nadam has no fused kernel"),
        (keras.optimizers.Lion, "Lion has no fused kernel"),
    ],
)
def test_settings_without_a_kernel_run_as_keras_and_say_so(make, word):
    assert word in no_kernel_reason(make())
    assert apart(make, steady(20)) == 0.0


def test_an_own_update_is_never_replaced():
    class Own(ADAM):
        def update_step(self, gradient, variable, learning_rate):
            self.assign_sub(variable, gradient * 0.5)

    class OwnCollective(ADAM):
        def _backend_update_step(self, grads, trainable_variables, rate):
            for gradient, variable in zip(grads, trainable_variables):
                variable.assign_sub(gradient * 0.5)

    class OwnAssign(ADAM):
        def assign_sub(self, variable, value):
            super().assign_sub(variable, 2.0 * value)

    class Inherits(ADAM):
        pass

    changed = ADAM()
    changed.update_step = lambda *arguments: None
    for optimizer in (Own(), OwnCollective(), OwnAssign(), changed):
        assert "has no fused kernel" in no_kernel_reason(optimizer)
    assert no_kernel_reason(Inherits()) is None
    assert apart(Own, steady(3)) == apart(OwnCollective, steady(3)) == 0.0


def test_other_dtypes_update_as_keras():
    assert apart(lambda: ADAM(1e-3), steady(5), dtype="float64") == 0.0

    class HalfSlots(ADAM):
        def add_variable_from_reference(self, reference_variable, **kwargs):
            half = keras.Variable(reference_variable, dtype="bfloat16")
            return super().add_variable_from_reference(half, **kwargs)

    assert apart(lambda: HalfSlots(1e-3), steady(5)) < 1e-6


def test_a_learning_rate_changed_between_steps_is_obeyed():
    variable, optimizer = keras.Variable([0.0]), keras.optimizers.SGD(1.0)
    optimizer.build([variable])
    with fused_updates(optimizer):
        step = tf.function(lambda: optimizer.apply([tf.ones(1)], [variable]))
        step()
        optimizer.learning_rate = 0.25
        step()
    assert variable.numpy() == pytest.approx([-1.25])
    assert "update_step" not in vars(optimizer)


@pytest.mark.parametrize("rows", [[], [3], [1, 1, 1, 1], [2, 0, 2, 4, 0]])
def test_the_parts_of_a_row_are_summed(rows):
    values = tf.reshape(tf.range(2.0 * len(rows)), (len(rows), 2))
    slices = tf.IndexedSlices(
        values, tf.constant(rows, tf.int64), tf.constant([5, 2])
    )
    unique = with_unique_rows(slices)
    assert len(set(unique.indices.numpy())) == unique.indices.shape[0]
    assert np.array_equal(
        tf.convert_to_tensor(unique), tf.convert_to_tensor(slices)
    )


@pytest.mark.parametrize("make", [keras.optimizers.SGD, ADAM])
def test_apply_takes_its_arguments_by_name(make):
    variable, optimizer = keras.Variable(np.ones((3, 2))), make(0.1)
    slices = tf.IndexedSlices(tf.ones((2, 2)), tf.constant([1, 1]), (3, 2))
    with summed_gradients(optimizer, jit_compile=False):
        optimizer.apply(grads=[slices], trainable_variables=[variable])
    moved = variable.numpy() != 1.0
    assert moved.any(axis=1).tolist() == [False, True, False]
