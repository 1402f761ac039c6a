"""Rows that are not up to date, and others who come near them."""

import copy
import gc
import pickle
import weakref
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from test_deferred_embeddings import (
    DEFERRED,
    ROWS,
    adam,
    bag,
    classifier,
    compare,
    sums,
    visits,
)
from training import with_dense_gradients
from zoo import FAST, STOCK, ZOO, Kit

import keras_fastgrad as fg

(HISTORY, _), LABELS = visits()


def compiled(kit: Kit, model: keras.Model, optimizer: Any = adam) -> Any:
    made = optimizer()
    if kit is STOCK:
        with_dense_gradients(made)
    arguments = {} if kit is STOCK else {"fastgrad": DEFERRED}
    model.compile(made, **ZOO["mlp"].compile(), **arguments)
    return model


def assert_near(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for expected, received in zip(one, other):
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=2e-6)


def state(model: keras.Model) -> list[Any]:
    return [
        *model.get_weights(),
        *(v.numpy() for v in model.optimizer.variables),
    ]


def one_of_two(kit: Kit) -> list[Any]:
    keras.utils.set_random_seed(1)
    inner = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(ROWS, 4),
            layers.GlobalAveragePooling1D(),
        ]
    )
    inner.predict(HISTORY, verbose=0)
    inputs = keras.Input((5,), dtype="int32")
    seen: list[Any] = []

    def look(epoch: int, logs: Any) -> None:
        seen.append(inner.predict(HISTORY, verbose=0))

    first, second = (
        compiled(kit, kit.functional(inputs, layers.Dense(2)(inner(inputs))))
        for _ in range(2)
    )
    first.fit(
        HISTORY,
        LABELS,
        batch_size=8,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=look)],
    )
    for at in (0, 8, 16, 24):
        batch = HISTORY[at : at + 8], LABELS[at : at + 8]
        second.train_on_batch(*batch)
        first.train_on_batch(*batch)
    if kit is FAST:
        text = " ".join(second.fastgrad.explain().split())
        assert "another model already updates it by the row" in text
    return [*seen, *state(first), *state(second)]


def test_a_table_that_two_models_train_and_a_third_predicts_with():
    assert_near(one_of_two(STOCK), one_of_two(FAST))


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_made_while_rows_wait_goes_on_alike(copied):
    keras.utils.set_random_seed(1)
    stock = compiled(STOCK, classifier(STOCK))
    ours = compiled(FAST, classifier(FAST))
    ours.set_weights(stock.get_weights())
    for seed in (1, 2, 3):
        stock.train_on_batch(*visits(8, seed))
        ours.train_on_batch(*visits(8, seed))
    twin = copied(ours)
    for variable in twin.weights:
        assert type(variable) is keras.Variable
    for model in (stock, ours, twin):
        model.train_on_batch(*visits(8, 4))
    assert_near(state(stock), state(ours))
    assert_near(state(stock), state(twin))


def test_a_lookup_in_a_branch():
    class Branch(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = layers.Embedding(ROWS, 4)

        def build(self, shape: Any) -> None:
            self.table.build()

        def call(self, ids: Any) -> Any:
            return keras.ops.cond(
                keras.ops.sum(ids) % 2 == 0,
                lambda: self.table(ids) * 2.0,
                lambda: keras.ops.tanh(self.table(ids)),
            )

        def compute_output_shape(self, shape: Any) -> Any:
            return (*shape, 4)

    def build(kit: Kit) -> keras.Model:
        inputs = keras.Input((5,), dtype="int32")
        h = layers.GlobalAveragePooling1D()(Branch()(inputs))
        return kit.functional(inputs, layers.Dense(2)(h))

    compare(build=build, data=(HISTORY, LABELS))


def test_texts_through_a_vectorization():
    texts = np.array([" ".join(f"w{i}" for i in row) for row in HISTORY])

    def build(kit: Kit) -> keras.Model:
        words = layers.TextVectorization(60, output_sequence_length=5)
        words.adapt(texts)
        inputs = keras.Input((), dtype="string")
        h = layers.Embedding(60, 4, mask_zero=True)(words(inputs))
        return kit.functional(inputs, layers.Dense(2)(layers.LSTM(3)(h)))

    compare(build=build, data=(tf.constant(texts), LABELS), jit_compile=False)


def test_steps_that_the_loss_scale_skips():
    targets = LABELS.astype("float32")[:, None]
    targets[20] = 1e38
    trained = []
    for kit in (STOCK, FAST):
        keras.utils.set_random_seed(1)
        model = bag(ROWS)(kit)
        optimizer = keras.optimizers.LossScaleOptimizer(
            adam(global_clipnorm=0.1), initial_scale=8.0, dynamic_growth_steps=3
        )
        if kit is STOCK:
            with_dense_gradients(optimizer)
        arguments = {} if kit is STOCK else {"fastgrad": DEFERRED}
        model.compile(optimizer, "mse", **arguments)
        model.fit(
            HISTORY, targets, batch_size=4, epochs=3, shuffle=False, verbose=0
        )
        assert model.optimizer.iterations < 36
        trained.append(state(model))
    assert_near(*trained)
    assert all(np.isfinite(value).all() for value in trained[1])


def test_a_gradient_changed_by_hand():
    def steps(how: str) -> Any:
        def step(model: Any, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x, y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            changed = [changes[how](each) for each in gradients]
            model.optimizer.apply(changed, model.trainable_variables)
            return {"loss": loss}

        return step

    def doubled(gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return 2.0 * gradient
        return tf.IndexedSlices(
            2.0 * gradient.values, gradient.indices, gradient.dense_shape
        )

    def twice(gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return 2.0 * gradient
        return tf.IndexedSlices(
            tf.concat([gradient.values] * 2, 0),
            tf.concat([gradient.indices] * 2, 0),
            gradient.dense_shape,
        )

    changes = {
        "dense": tf.convert_to_tensor,
        "doubled": doubled,
        "twice": twice,
    }
    for how in changes:

        class Fast(fg.FastGradModel):
            train_step = steps(how)

        class Stock(keras.Model):
            train_step = steps(how)

        def build(kit: Kit, models: Any = (Stock, Fast)) -> keras.Model:
            cls = models[kit is FAST]
            return classifier(Kit(cls, kit.sequential, kit.base))

        compare(build=build, metrics=None)


def test_tables_are_let_go_of():
    model = classifier(FAST)
    tables = []
    for _ in range(4):
        compiled(FAST, model)
        model.train_on_batch(*visits(8, 1))
        (table,) = model.fastgrad._tables._all()
        tables.append(weakref.ref(table))
        del table
    gc.collect()
    assert sum(table() is not None for table in tables) == 1


@pytest.mark.parametrize("steps", [1, 3])
def test_float16_by_strategy(steps):
    model = bag(ROWS)(FAST)
    strategy = fg.Strategy(
        sparse_update="deferred",
        precision="mixed_float16",
        steps_per_execution=steps,
    )
    model.compile(adam(), **ZOO["mlp"].compile(), fastgrad=strategy)
    history = model.fit(HISTORY, sums(HISTORY), epochs=4, verbose=0).history
    assert model.fastgrad.strategy.sparse_update == "deferred"
    assert history["loss"][-1] < history["loss"][0]
