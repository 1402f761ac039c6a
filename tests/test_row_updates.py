"""Updates by the row move a table as dense updates do, for each optimizer."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import optimizers
from training import with_dense_gradients

import keras_fastgrad as fg
from keras_fastgrad.optimizers.rows.series import TOLERANCE, decay_series
from keras_fastgrad.optimizers.rows.table import Table

ROWS, WIDTH, STEPS, BATCH, LENGTH = 41, 3, 500, 4, 3
DEFERRED = fg.Strategy(sparse_update="deferred", steps_per_execution=50)
LAZY = fg.Strategy(sparse_update="lazy", steps_per_execution=50)


def falling():
    return optimizers.schedules.ExponentialDecay(0.01, 100, 0.7)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.1),
    "sgd_decay": lambda: optimizers.SGD(0.1, weight_decay=0.01),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: optimizers.SGD(falling(), momentum=0.9, nesterov=True),
    "momentum_decay": lambda: optimizers.SGD(
        0.1, momentum=0.9, weight_decay=0.01
    ),
    "adam": lambda: optimizers.Adam(0.01),
    "adam_falling": lambda: optimizers.Adam(falling()),
    "adam_slow": lambda: optimizers.Adam(0.01, beta_1=0.95, beta_2=0.99),
    "amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "adamw_clip": lambda: optimizers.AdamW(falling(), global_clipnorm=0.1),
    "adamax": lambda: optimizers.Adamax(0.01),
    "rmsprop": lambda: optimizers.RMSprop(0.01),
    "rmsprop_full": lambda: optimizers.RMSprop(
        0.01, momentum=0.9, centered=True
    ),
    "rmsprop_decay": lambda: optimizers.RMSprop(
        0.01, centered=True, weight_decay=0.01
    ),
    "adagrad": lambda: optimizers.Adagrad(0.01),
    "ftrl": lambda: optimizers.Ftrl(falling(), l1_regularization_strength=0.01),
    "lion": lambda: optimizers.Lion(0.001, weight_decay=0.1),
    "lion_falling": lambda: optimizers.Lion(falling(), beta_2=0.9),
}


def prescribed() -> tuple[np.ndarray, np.ndarray]:
    """Ids after Zipf's law, and a gradient for each.

    The root of a row's mean square lies between 1e-9 and 10, far below and
    far above epsilon.
    """
    rng = np.random.default_rng(0)
    shape = (STEPS * BATCH, LENGTH)
    ids = (np.floor(ROWS ** rng.random(shape)) - 1).astype("int32")
    size = 10.0 ** np.linspace(-9, 1, ROWS)
    rng.shuffle(size)
    gradients = rng.standard_normal((*shape, WIDTH)) * size[ids][..., None]
    return ids, gradients.astype("float32")


def given(gradient: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """A loss whose gradient for the rows is what is passed as the target."""
    return tf.reduce_sum(gradient * rows, [1, 2]) * BATCH


def build(cls: type) -> keras.Model:
    keras.utils.set_random_seed(1)
    return cls(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(ROWS, WIDTH),
        ]
    )


def fit(model: keras.Model, data: Any = None, **arguments: Any) -> keras.Model:
    ids, gradients = prescribed() if data is None else data
    model.fit(
        ids, gradients, batch_size=BATCH, shuffle=False, verbose=0, **arguments
    )
    return model


def trained_by_stock(optimizer: Any, data: Any = None) -> keras.Model:
    model = build(keras.Sequential)
    with_dense_gradients(optimizer)
    model.compile(optimizer, given, steps_per_execution=50)
    return fit(model, data)


def trained_by_us(
    optimizer: Any, strategy: fg.Strategy = DEFERRED, data: Any = None
) -> keras.Model:
    model = build(fg.FastGradSequential)
    model.compile(optimizer, given, fastgrad=strategy)
    assert model.fastgrad.strategy.sparse_update == strategy.sparse_update
    return fit(model, data)


def assert_same_table(stock: keras.Model, ours: keras.Model) -> None:
    """Agree to 1e-5 of the distance moved, and to rounding of the weight.

    A distance is that of the row; slots start from zero. The dense update
    rounds a weight 500 times, each time by up to 6e-8 of it.
    """
    (before,) = build(keras.Sequential).get_weights()
    (one,), (other,) = stock.get_weights(), ours.get_weights()
    moved = np.abs(one - before).max(axis=1, keepdims=True)
    rounding = 4e-6 * np.abs(one).max(axis=1, keepdims=True)
    assert np.all(np.abs(one - other) <= 1e-5 * moved + rounding)
    assert moved.max() > 1e-3
    assert np.abs(one - other).max() <= 1e-5 * moved.max()
    for slot, ours_slot in zip(
        stock.optimizer.variables, ours.optimizer.variables, strict=True
    ):
        one, other = slot.numpy(), ours_slot.numpy()
        # Below the smallest normal number rounding is coarse.
        bound = 1e-5 * np.abs(one).max(-1, keepdims=True) + 1e-37
        assert np.all(np.abs(one - other) <= bound), slot.path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_deferred_update_moves_a_table_as_a_dense_one(name):
    make = OPTIMIZERS[name]
    assert_same_table(trained_by_stock(make()), trained_by_us(make()))


@pytest.mark.parametrize("name", ["adam", "adamw", "lion", "ftrl"])
def test_the_history_may_begin_anew_at_any_step(name, monkeypatch):
    monkeypatch.setattr(Table, "length", 7)
    make = OPTIMIZERS[name]
    assert_same_table(trained_by_stock(make()), trained_by_us(make()))


@pytest.mark.parametrize("name", ["adam", "adamax"])
def test_a_million_steps_into_the_training(name):
    def late(optimizer: Any) -> Any:
        optimizer.iterations.assign(1_000_000)
        return optimizer

    make = OPTIMIZERS[name]
    stock = trained_by_stock(late(make()))
    assert_same_table(stock, trained_by_us(late(make())))


def test_a_lazy_update_is_another_training():
    make = OPTIMIZERS["adam"]
    (dense,) = trained_by_stock(make()).get_weights()
    (lazy,) = trained_by_us(make(), LAZY).get_weights()
    assert np.abs(lazy - dense).max() > 1e-3


def test_a_lazy_update_moves_only_the_rows_of_the_batch():
    ids = np.array([[1, 1, 2]] * BATCH + [[3, 3, 3]] * BATCH, "int32")
    data = ids, np.ones((*ids.shape, WIDTH), "float32")
    model = trained_by_us(optimizers.Adam(0.1), LAZY, data)
    dense = trained_by_stock(optimizers.Adam(0.1), data)
    # Rows 1 and 2 have had one step, in which lazy and dense agree.
    (first,) = trained_by_stock(
        optimizers.Adam(0.1), tuple(part[:BATCH] for part in data)
    ).get_weights()
    (lazy,), (moved_on,) = model.get_weights(), dense.get_weights()
    np.testing.assert_allclose(lazy[1:3], first[1:3], rtol=1e-6)
    np.testing.assert_allclose(lazy[3], moved_on[3], rtol=1e-6)
    assert np.abs(lazy[1:3] - moved_on[1:3]).min() > 1e-2


@pytest.mark.parametrize("name", [*OPTIMIZERS, "nadam"])
def test_lazy_and_dense_agree_where_every_batch_names_every_row(name):
    make = {**OPTIMIZERS, "nadam": lambda: optimizers.Nadam(0.01)}[name]
    rng = np.random.default_rng(0)
    ids = np.tile(np.arange(ROWS, dtype="int32"), (60, 1))
    ids = rng.permuted(ids, axis=1)
    gradients = rng.standard_normal((*ids.shape, WIDTH)).astype("float32")
    models = []
    for cls, arguments in (
        (keras.Sequential, {}),
        (fg.FastGradSequential, {"fastgrad": LAZY}),
    ):
        keras.utils.set_random_seed(1)
        model = cls(
            [
                keras.Input((ROWS,), dtype="int32"),
                keras.layers.Embedding(ROWS, WIDTH),
            ]
        )
        optimizer = make()
        if not arguments:
            with_dense_gradients(optimizer)
        model.compile(optimizer, given, **arguments)
        model.fit(ids, gradients, batch_size=1, shuffle=False, verbose=0)
        models.append(model)
    one, other = (model.get_weights()[0] for model in models)
    np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-6)


def test_nadam_is_updated_whole_and_says_why():
    model = build(fg.FastGradSequential)
    model.compile(optimizers.Nadam(), given, fastgrad=DEFERRED)
    assert model.fastgrad.strategy.sparse_update == "dense"
    text = " ".join(model.fastgrad.explain().split())
    assert "embedding: updated whole; Nadam corrects its epsilon" in text


def owed(betas: tuple[float, float], q: np.ndarray, steps: int) -> np.ndarray:
    """What a row owes after many steps, summed in float64."""
    j = np.arange(1, steps + 1)[:, None]
    return (betas[0] ** j / (1 - q * (1 - betas[1] ** (j / 2)))).sum(axis=0)


@pytest.mark.parametrize("beta_1", [0.0, 0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("beta_2", [0.99, 0.995, 0.999, 0.9999])
def test_the_series_is_as_near_as_it_says(beta_1, beta_2):
    series = decay_series(beta_1, float(np.sqrt(beta_2)))
    q = np.linspace(0, 1, 1001)
    whole = owed((beta_1, beta_2), q, 4_000)
    if beta_1 == 0:
        assert series.steps == 0 and not whole.any()
        return
    ours = np.polynomial.polynomial.polyval(q, series.weights.sum(axis=0))
    error = np.abs(ours / whole - 1).max()
    assert error <= series.bound <= TOLERANCE
    # One term less is not enough: the length is not a guess.
    fewer = np.polynomial.polynomial.polyval(
        q, series.weights[:, :-1].sum(axis=0)
    )
    assert np.abs(fewer / whole - 1).max() > TOLERANCE


@pytest.mark.parametrize("betas", [(0.99, 0.98), (0.9, 0.8), (0.9999, 0.99999)])
def test_betas_that_need_too_long_a_series_are_updated_whole(betas):
    model = build(fg.FastGradSequential)
    optimizer = optimizers.Adam(beta_1=betas[0], beta_2=betas[1])
    model.compile(optimizer, given, fastgrad=DEFERRED)
    assert model.fastgrad.strategy.sparse_update == "dense"
    text = " ".join(model.fastgrad.explain().split())
    assert "embedding: updated whole; with these settings of Adam" in text
