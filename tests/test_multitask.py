"""Gradients of several tasks that meet at the output of their trunk."""

from itertools import permutations
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers
from training import assert_same_training
from zoo import FAST, STOCK, Kit

import keras_fastgrad as fg
from keras_fastgrad.gradients import multitask
from keras_fastgrad.gradients.task_weights import mgda_weights, pcgrad_weights

SHAPE = (5, 3)
WEIGHTINGS = ["sum", "pcgrad", "mgda"]


def task_gradients(tasks: int, seed: int = 0) -> np.ndarray:
    """Gradients of which some work against each other."""
    draw = np.random.default_rng(seed)
    return draw.standard_normal((tasks, *SHAPE)).astype("float32")


def pcgrad_by_the_book(gradients: np.ndarray, orders: Any = None) -> np.ndarray:
    """Algorithm 1 of the paper, on the gradients themselves."""
    flat = gradients.reshape(len(gradients), -1).astype("float64")
    total = np.zeros_like(flat[0])
    for task, own in enumerate(flat):
        own = own.copy()
        order = range(len(flat)) if orders is None else orders[task]
        for other in order:
            inner = own @ flat[other]
            if other != task and inner < 0:
                own -= inner / (flat[other] @ flat[other]) * flat[other]
        total += own
    return total.reshape(SHAPE)


def received(
    upstream: np.ndarray, weighting: str, dtype: str = "float32", **options: Any
) -> tf.Tensor:
    """What the trunk gets of these gradients."""
    shared = tf.zeros(SHAPE, dtype)
    with tf.GradientTape() as tape:
        tape.watch(shared)
        parts = multitask(shared, len(upstream), weighting, **options)
        loss = tf.add_n(
            [
                tf.reduce_sum(part * tf.cast(own, dtype))
                for part, own in zip(parts, upstream)
            ]
        )
    return tape.gradient(loss, shared)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_sum_is_that_of_tensorflow(tasks):
    upstream = task_gradients(tasks)
    np.testing.assert_allclose(
        received(upstream, "sum"), upstream.sum(0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("tasks", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_pcgrad_is_that_of_its_paper(tasks, seed):
    upstream = task_gradients(tasks, seed)
    np.testing.assert_allclose(
        received(upstream, "pcgrad"),
        pcgrad_by_the_book(upstream),
        rtol=1e-4,
        atol=1e-5,
    )


def test_pcgrad_in_an_order_drawn_for_each_task():
    upstream = task_gradients(3)
    results = {
        tuple(np.round(received(upstream, "pcgrad", seed=[3, n]), 3).ravel())
        for n in range(30)
    }
    orders = list(permutations(range(3)))
    possible = {
        tuple(np.round(each.astype("float32"), 3).ravel())
        for one in orders
        for two in orders
        for three in orders
        for each in [pcgrad_by_the_book(upstream, (one, two, three))]
    }
    assert len(results) > 1
    for each in results:
        nearest = min(
            np.abs(np.subtract(each, other)).max() for other in possible
        )
        assert nearest < 2e-3


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 7), st.integers(0, 10_000), st.floats(-3, 3))
def test_mgda_is_the_shortest_convex_combination(tasks, seed, common):
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((tasks, 4)) + common * draw.standard_normal(4)
    products = (rows @ rows.T).astype("float32")
    weights = mgda_weights(tf.constant(products)).numpy().astype("float64")
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    # At the minimum no single gradient lies below the combination.
    heights = rows @ (weights @ rows)
    length = weights @ heights
    assert heights.min() >= length - 1e-4 * np.abs(products).max()


def test_mgda_of_two_tasks_in_closed_form():
    upstream = task_gradients(2)
    one, two = upstream.reshape(2, -1)
    share = np.clip((two - one) @ two / ((one - two) @ (one - two)), 0, 1)
    expected = share * upstream[0] + (1 - share) * upstream[1]
    np.testing.assert_allclose(
        received(upstream, "mgda"), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("weighting", ["pcgrad", "mgda"])
def test_a_scaled_loss_scales_the_gradient(weighting):
    upstream = task_gradients(4)
    np.testing.assert_allclose(
        received(2.0**20 * upstream, weighting) / 2.0**20,
        received(upstream, weighting),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("weighting", ["pcgrad", "mgda"])
def test_a_gradient_of_zero_divides_nothing(weighting):
    upstream = task_gradients(3)
    upstream[1] = 0
    assert np.isfinite(received(upstream, weighting)).all()
    assert not np.any(received(np.zeros_like(upstream), weighting))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_gradient_that_is_not_finite_is_seen(weighting):
    upstream = task_gradients(3)
    upstream[1, 0, 0] = np.inf
    assert not np.isfinite(received(upstream, weighting)).all()


@pytest.mark.parametrize("weighting", ["pcgrad", "mgda"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weighs_in_float32(weighting, dtype):
    # Squares of these lie beyond float16.
    upstream = 500 * task_gradients(3)
    found = received(upstream, weighting, dtype)
    assert found.dtype == tf.as_dtype(dtype)
    expected = received(upstream, weighting).numpy()
    apart = np.abs(tf.cast(found, "float32") - expected).max()
    assert apart < 0.02 * np.abs(expected).max()


def functional(kit: Kit, split: Any) -> keras.Model:
    """A trunk of two layers under three heads."""
    inputs = keras.Input((12,))
    hidden = layers.Dense(16, activation="tanh", name="trunk")(inputs)
    hidden = layers.Dense(8, activation="tanh")(hidden)
    heads = [
        layers.Dense(2, name=f"head_{task}")(each)
        for task, each in enumerate(split(hidden))
    ]
    return kit.functional(inputs, heads)


def trained(kit: Kit, split: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(4)
    model = functional(kit, split)
    model.compile(
        keras.optimizers.Adam(0.01, epsilon=1e-3), ["mse"] * 3, **options
    )
    model.fit(*data(), batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model


def data() -> tuple[np.ndarray, list[np.ndarray]]:
    draw = np.random.default_rng(1)
    x = draw.standard_normal((40, 12)).astype("float32")
    y = [x[:, n : n + 2] - x[:, n + 1 : n + 3] for n in range(3)]
    return x, y


def test_a_sum_trains_as_a_model_without_the_layer():
    stock = trained(STOCK, lambda hidden: [hidden] * 3)
    ours = trained(FAST, fg.layers.Multitask(3))
    assert_same_training(stock, ours)


WEIGHTS = {"pcgrad": pcgrad_weights, "mgda": mgda_weights}


class BackwardPerTask(keras.Model):
    """One backward pass for each task, as papers have it."""

    weighting = "pcgrad"

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            hidden = keras.ops.convert_to_tensor(x)
            for layer in self.layers[1:3]:
                hidden = layer(hidden)
            losses = [
                tf.reduce_mean(tf.square(head(hidden) - own))
                for head, own in zip(self.layers[3:], y)
            ]
        trunk = [w for each in self.layers[1:3] for w in each.trainable_weights]
        rows = tf.stack(
            [tf.reshape(tape.gradient(loss, hidden), [-1]) for loss in losses]
        )
        weights = WEIGHTS[self.weighting](
            tf.matmul(rows, rows, transpose_b=True)
        )
        of_trunk = [
            tf.add_n([weights[n] * part for n, part in enumerate(parts)])
            for parts in zip(*(tape.gradient(loss, trunk) for loss in losses))
        ]
        pairs = list(zip(of_trunk, trunk))
        for head, loss in zip(self.layers[3:], losses):
            own = head.trainable_weights
            pairs += zip(tape.gradient(loss, own), own)
        self.optimizer.apply_gradients(pairs)
        return {"loss": tf.add_n(losses)}


@pytest.mark.parametrize("weighting", ["pcgrad", "mgda"])
def test_one_pass_through_the_trunk_trains_as_one_for_each_task(weighting):
    kit = Kit(BackwardPerTask, keras.Sequential, BackwardPerTask)
    BackwardPerTask.weighting = weighting
    reference = trained(kit, lambda hidden: [hidden] * 3)
    ours = trained(FAST, fg.layers.Multitask(3, weighting))
    other = trained(FAST, fg.layers.Multitask(3))
    apart = 0.0
    for one, two, third in zip(
        *(m.get_weights() for m in (reference, ours, other))
    ):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)
        apart = max(apart, np.abs(third - two).max())
    assert apart > 1e-3


def test_the_trunk_has_one_backward_pass():
    model = functional(FAST, fg.layers.Multitask(3, "pcgrad"))
    x, y = data()

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = [
                tf.reduce_mean(tf.square(made - own))
                for made, own in zip(model(x), y)
            ]
            loss = tf.add_n(losses)
        return tape.gradient(loss, model.trainable_weights)

    operations = step.get_concrete_function(
        tf.constant(x)
    ).graph.get_operations()
    shapes = [
        tuple(each.outputs[0].shape)
        for each in operations
        if each.type == "MatMul"
    ]
    assert shapes.count((12, 16)) == 1


@pytest.mark.parametrize("weighting", ["pcgrad", "mgda"])
@pytest.mark.parametrize(
    "options",
    [
        {"run_eagerly": True},
        {"fastgrad": fg.Strategy(jit_compile=True)},
        {"fastgrad": fg.Strategy(steps_per_execution=3)},
        {"fastgrad": False},
    ],
    ids=["eager", "xla", "many steps", "off"],
)
def test_other_ways_to_run(weighting, options):
    expected = trained(FAST, fg.layers.Multitask(3, weighting))
    found = trained(FAST, fg.layers.Multitask(3, weighting), **options)
    for one, other in zip(expected.get_weights(), found.get_weights()):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_model_is_saved_with_the_layer(weighting, tmp_path):
    model = trained(FAST, fg.layers.Multitask(3, weighting))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x, _ = data()
    for one, other in zip(
        model.predict(x, verbose=0), loaded.predict(x, verbose=0)
    ):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    (layer,) = (
        each for each in loaded.layers if isinstance(each, fg.layers.Multitask)
    )
    assert (layer.tasks, layer.weighting) == (3, weighting)


def test_a_second_derivative_is_refused():
    shared = tf.ones(SHAPE)
    with pytest.raises(NotImplementedError, match="`multitask` has no"):
        with tf.GradientTape() as outer:
            outer.watch(shared)
            with tf.GradientTape() as inner:
                inner.watch(shared)
                one, two = multitask(shared, 2, "pcgrad")
                loss = tf.reduce_sum(one**3 - two**2)
            first = inner.gradient(loss, shared)
        outer.gradient(first, shared)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 0}, "integer from 1 on"),
        ({"tasks": True}, "integer from 1 on"),
        ({"tasks": 2.0}, "integer from 1 on"),
        ({"weighting": "PCGrad"}, "must be one of"),
        ({"weighting": "mgda", "seed": [1, 2]}, "alone depends on an order"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        multitask(**({"shared": tf.ones(SHAPE), "tasks": 2} | arguments))
