"""Embeddings updated by the row inside models, fits, callbacks and files."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, train, with_dense_gradients
from zoo import FAST, STOCK, ZOO, Kit

import keras_fastgrad as fg

DEFERRED = fg.Strategy(sparse_update="deferred")
ROWS = 53


def adam(**arguments: Any) -> Any:
    return keras.optimizers.Adam(0.02, epsilon=1e-3, **arguments)


def classifier(kit: Kit) -> keras.Model:
    """A shared table, read once for a history and once for an item."""
    history = keras.Input((5,), dtype="int32")
    item = keras.Input((1,), dtype="int64")
    table = layers.Embedding(ROWS, 6)
    user = layers.GlobalAveragePooling1D()(table(history))
    wanted = layers.Flatten()(table(item))
    h = layers.Dense(8, "tanh")(layers.Concatenate()([user, wanted]))
    return kit.functional([history, item], layers.Dense(2)(h))


def visits(samples: int = 46, seed: int = 7) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    history = rng.zipf(1.3, (samples, 5)).clip(0, ROWS - 1).astype("int32")
    item = rng.integers(0, ROWS, (samples, 1))
    return [history, item], (item[:, 0] > history.mean(1)).astype("int32")


def compare(
    optimizer: Any = adam,
    build: Any = classifier,
    data: Any = None,
    strategy: fg.Strategy = DEFERRED,
    callbacks: Any = lambda: None,
    **arguments: Any,
) -> tuple[keras.Model, keras.Model]:
    """Trains both kits alike and checks that they stay together."""
    data = visits() if data is None else data
    common = dict(ZOO["mlp"].compile(), **arguments)
    stock = train(
        lambda: build(STOCK),
        data,
        with_dense_gradients(optimizer()),
        callbacks=callbacks(),
        **common,
    )
    ours = train(
        lambda: build(FAST),
        data,
        optimizer(),
        callbacks=callbacks(),
        fastgrad=strategy,
        **common,
    )
    assert ours.fastgrad.strategy.sparse_update == "deferred"
    assert_same_training(stock, ours)
    return stock, ours


@pytest.mark.parametrize("name", ["text", "recommender", "transformer"])
def test_models_of_the_zoo_train_as_stock(name):
    member = ZOO[name]
    compare(build=member.build, data=member.data())


@pytest.mark.parametrize(
    "optimizer",
    [
        adam,
        lambda: adam(clipnorm=0.05),
        lambda: adam(clipvalue=0.01),
        lambda: adam(global_clipnorm=0.05),
        lambda: keras.optimizers.AdamW(0.02, weight_decay=0.1, epsilon=1e-3),
        lambda: keras.optimizers.SGD(0.2, momentum=0.9, clipnorm=0.05),
        lambda: keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(0.2, 18)
        ),
        lambda: keras.optimizers.LossScaleOptimizer(
            adam(global_clipnorm=0.05), dynamic_growth_steps=4
        ),
        lambda: adam(loss_scale_factor=1024.0),
    ],
)
def test_every_way_of_clipping_scaling_and_decay(optimizer):
    compare(optimizer)


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def test_case_25_repeated_ids_in_float16():
    def build(kit: Kit) -> keras.Model:
        with policy("mixed_float16"):
            return classifier(kit)

    compare(lambda: adam(global_clipnorm=0.05), build)


@pytest.mark.parametrize("steps", [1, 4])
def test_evaluation_in_the_middle(steps):
    compare(
        strategy=fg.Strategy(
            sparse_update="deferred", steps_per_execution=steps
        ),
        fit={"validation_data": visits(20, seed=3), "validation_batch_size": 7},
    )


def table_of(model: keras.Model) -> layers.Embedding:
    """The embedding of a model."""
    return next(x for x in model.layers if isinstance(x, layers.Embedding))


class Looking(keras.callbacks.Callback):
    """Notes what it sees of weights and slots in the middle of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[np.ndarray] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch in (2, 3):
            model = self.model
            table = table_of(model)
            self.seen.append(table.get_weights()[0])
            self.seen.append(table.embeddings.numpy())
            self.seen.append(keras.ops.convert_to_numpy(table.embeddings))
            self.seen += [v.numpy() for v in model.optimizer.variables]
            self.seen.append(model.predict_on_batch(visits(6)[0]))
            self.seen.append(model(visits(6)[0]).numpy())


def test_who_looks_in_the_middle_sees_what_dense_updates_made():
    looking = [Looking(), Looking()]
    given = iter(looking)
    compare(callbacks=lambda: [next(given)])
    one, other = looking
    assert len(one.seen) == len(other.seen) > 20
    for before, after in zip(one.seen, other.seen):
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)


class Writing(keras.callbacks.Callback):
    """Writes weights, slots and the rate in the middle of an epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        table = table_of(self.model)
        if batch == 1:
            table.set_weights([np.flip(table.get_weights()[0], 0).copy()])
        if batch == 2:
            self.model.optimizer.learning_rate = 0.05
        if batch == 3:
            for slot in self.model.optimizer.variables:
                if slot.shape == (ROWS, 6):
                    slot.assign(np.full(slot.shape, 1e-3, "float32"))


def test_what_is_written_in_the_middle_is_trained_on():
    compare(callbacks=lambda: [Writing()])


def test_a_switch_in_the_middle():
    class Switching(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if isinstance(self.model, fg.FastGradModel) and batch in (1, 3):
                mode = "dense" if batch == 1 else "deferred"
                self.model.fastgrad.use(fg.Strategy(sparse_update=mode))

    compare(callbacks=lambda: [Switching()])


def test_save_load_and_go_on(tmp_path):
    def halves(kit: Kit, optimizer: Any, **arguments: Any) -> keras.Model:
        keras.utils.set_random_seed(11)
        model = classifier(kit)
        model.compile(optimizer, **ZOO["mlp"].compile(), **arguments)
        x, y = visits()
        fit = {"batch_size": 8, "verbose": 0, "shuffle": False}
        model.fit(x, y, epochs=2, **fit)
        path = tmp_path / f"{type(model).__name__}.keras"
        model.save(path)
        # What was saved is whole; what goes on from it is too.
        model = keras.saving.load_model(path)
        if kit is STOCK:
            with_dense_gradients(model.optimizer)
        else:
            assert model.fastgrad.strategy.sparse_update == "deferred"
        model.fit(x, y, epochs=2, **fit)
        return model

    stock = halves(STOCK, with_dense_gradients(adam()))
    ours = halves(FAST, adam(), fastgrad=DEFERRED)
    assert_same_training(stock, ours)


def test_a_run_that_is_killed_and_resumed(tmp_path):
    class Killer(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if self.model.optimizer.iterations == 11:
                raise KeyboardInterrupt

    def resumed(kit: Kit, optimizer: Any, **arguments: Any) -> keras.Model:
        keras.utils.set_random_seed(11)
        model = classifier(kit)
        model.compile(optimizer, **ZOO["mlp"].compile(), **arguments)
        x, y = visits()
        fit = {"batch_size": 8, "verbose": 0, "shuffle": False, "epochs": 4}
        backup = keras.callbacks.BackupAndRestore(
            tmp_path / type(model).__name__, save_freq=5
        )
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, callbacks=[backup, Killer()], **fit)
        # As in a new process: other weights, which the backup replaces.
        for weight in model.weights:
            weight.assign(np.zeros(weight.shape))
        model.fit(x, y, callbacks=[backup], **fit)
        return model

    stock = resumed(STOCK, with_dense_gradients(adam()))
    ours = resumed(FAST, adam(), fastgrad=DEFERRED)
    assert_same_training(stock, ours)


def test_an_interrupted_fit_leaves_whole_rows():
    class Killer(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                raise KeyboardInterrupt

    weights = []
    for kit, optimizer in (
        (STOCK, with_dense_gradients(adam())),
        (FAST, adam()),
    ):
        keras.utils.set_random_seed(11)
        model = classifier(kit)
        arguments = {} if kit is STOCK else {"fastgrad": DEFERRED}
        model.compile(optimizer, **ZOO["mlp"].compile(), **arguments)
        x, y = visits()
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[Killer()])
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_train_on_batch():
    losses = []
    for kit, optimizer in (
        (STOCK, with_dense_gradients(adam())),
        (FAST, adam()),
    ):
        keras.utils.set_random_seed(11)
        model = classifier(kit)
        arguments = {} if kit is STOCK else {"fastgrad": DEFERRED}
        model.compile(optimizer, **ZOO["mlp"].compile(), **arguments)
        losses.append(
            [
                model.train_on_batch(*visits(8, seed))[0]
                for seed in (1, 2, 3, 1, 2, 3, 4)
            ]
        )
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def sums(ids: np.ndarray) -> np.ndarray:
    return (ids.sum(1) % 2).astype("int32")


def bag(rows: int) -> Any:
    def build(kit: Kit) -> keras.Model:
        return kit.sequential(
            [
                keras.Input((None,), dtype="int32"),
                layers.Embedding(rows, 4),
                layers.GlobalAveragePooling1D(),
                layers.Dense(2),
            ]
        )

    return build


@pytest.mark.parametrize(
    "rows, ids",
    [
        (1, np.zeros((46, 3), "int32")),
        (7, np.full((46, 1000), 3, "int32")),
        (7, np.random.default_rng(0).integers(-7, 7, (46, 5))),
        (7, np.random.default_rng(0).integers(0, 7, (46, 5)).astype("uint8")),
        (7, np.random.default_rng(0).integers(0, 7, (46, 5)) * 1.0),
    ],
    ids=["one row", "one id", "negative", "uint8", "float"],
)
def test_unusual_ids(rows, ids):
    compare(build=bag(rows), data=(ids, sums(np.abs(ids).astype("int64"))))


def test_a_step_without_any_id():
    def build(kit: Kit) -> keras.Model:
        words = keras.Input((None,), dtype="int32")
        dense = keras.Input((3,))
        h = layers.Embedding(7, 4)(words)
        h = layers.Lambda(lambda x: keras.ops.sum(x, 1), output_shape=(4,))(h)
        return kit.functional(
            [words, dense], layers.Dense(2)(layers.Concatenate()([h, dense]))
        )

    rng = np.random.default_rng(0)
    batches = [
        (
            (
                rng.integers(0, 7, (4, length)).astype("int32"),
                rng.standard_normal((4, 3)).astype("float32"),
            ),
            rng.integers(0, 2, 4),
        )
        for length in (2, 0, 3, 0, 0, 2)
    ]
    weights = []
    for kit, optimizer in (
        (STOCK, with_dense_gradients(adam())),
        (FAST, adam()),
    ):
        keras.utils.set_random_seed(11)
        model = build(kit)
        arguments = {} if kit is STOCK else {"fastgrad": DEFERRED}
        model.compile(optimizer, **ZOO["mlp"].compile(), **arguments)
        for x, y in batches:
            model.train_on_batch(list(x), y)
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_an_id_out_of_range_is_an_error_and_loses_nothing():
    model = bag(7)(FAST)
    model.compile(adam(), **ZOO["mlp"].compile(), fastgrad=DEFERRED)
    good, bad = np.full((8, 3), 2), np.full((8, 3), 7)
    model.train_on_batch(good, sums(good))
    before = model.get_weights()
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        model.train_on_batch(bad, sums(bad))
    for one, other in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, other)
    model.train_on_batch(good, sums(good))


def test_case_18_accumulation_equals_one_double_batch():
    x, y = visits(48)
    weights = []
    for batch_size, steps in ((16, None), (8, 2)):
        keras.utils.set_random_seed(11)
        model = classifier(FAST)
        optimizer = adam(gradient_accumulation_steps=steps)
        model.compile(optimizer, **ZOO["mlp"].compile(), fastgrad=True)
        model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def tied(kit: Kit) -> keras.Model:
    """A subclass, built by its first step, whose head is its table."""

    class Tied(kit.base):
        def __init__(self) -> None:
            super().__init__()
            self.table = layers.Embedding(ROWS, 8)
            self.hidden = layers.Dense(8, "tanh")

        def call(self, ids: Any) -> Any:
            h = self.hidden(keras.ops.mean(self.table(ids), axis=1))
            head = keras.ops.transpose(self.table.embeddings)
            return keras.ops.matmul(h, head)

    return Tied()


def test_a_tied_head_makes_the_table_whole_and_says_so():
    (history, _), _ = visits()
    _, ours = compare(build=tied, data=(history, history[:, 0]))
    text = " ".join(ours.fastgrad.explain().split())
    assert "the step also uses all its rows" in text


def test_a_subclass_that_its_first_step_builds():
    def build(kit: Kit) -> keras.Model:
        class Bag(kit.base):
            def __init__(self) -> None:
                super().__init__()
                self.table = layers.Embedding(ROWS, 8)
                self.drop = layers.Dropout(0.3)
                self.head = layers.Dense(2)

            def call(self, ids: Any, training: bool = False) -> Any:
                h = keras.ops.mean(self.table(ids), axis=1)
                return self.head(self.drop(h, training=training))

        return Bag()

    (history, _), y = visits()
    _, ours = compare(build=build, data=(history, y))
    assert "Updated by the row: " in ours.fastgrad.explain()


def test_a_step_of_ones_own_with_two_updates():
    def step(model: Any, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x, y, y_pred)
            half = loss * 0.5
        weights = model.trainable_variables
        for part in (loss, half):
            gradients = tape.gradient(part, weights)
            model.optimizer.apply_gradients(zip(gradients, weights))
        return {"loss": loss}

    class Fast(fg.FastGradModel):
        train_step = step

    class Stock(keras.Model):
        train_step = step

    compare(
        build=lambda kit: classifier(
            Kit(Fast if kit is FAST else Stock, kit.sequential, kit.base)
        ),
        metrics=None,
    )


def test_lookups_inside_a_function_of_the_users():
    def build(kit: Kit) -> keras.Model:
        class Inner(layers.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.table = layers.Embedding(ROWS, 4)

            def build(self, shape: Any) -> None:
                self.table.build()

            def call(self, ids: Any) -> Any:
                @tf.function(autograph=False)
                def looked_up(ids: tf.Tensor) -> tf.Tensor:
                    return tf.reduce_mean(self.table(ids), axis=1)

                return looked_up(ids)

            def compute_output_shape(self, shape: Any) -> Any:
                return (shape[0], 4)

        inputs = keras.Input((5,), dtype="int32")
        return kit.functional(inputs, layers.Dense(2)(Inner()(inputs)))

    (history, _), y = visits()
    compare(build=build, data=(history, y))


def test_ragged_and_other_inputs_are_read_as_keras_does():
    table = layers.Embedding(9, 3)
    model = fg.FastGradSequential([table, layers.GlobalAveragePooling1D()])
    model.compile(adam(), "mse", fastgrad=DEFERRED)
    x = tf.ragged.constant([[1, 2], [3], [4, 5, 6]], dtype="int32")
    assert isinstance(table(x), tf.RaggedTensor)


def test_case_26_no_tensor_of_the_tables_size_is_made():
    rows = 200_003
    model = bag(rows)(FAST)
    model.compile("adam", **ZOO["mlp"].compile(), fastgrad=DEFERRED)
    made: set[str] = set()

    class Watch(fg.FastGradSequential):
        def train_step(self, data: Any) -> Any:
            logs = super().train_step(data)
            graph = tf.compat.v1.get_default_graph()
            for op in graph.get_operations():
                for tensor in op.outputs:
                    shape = tensor.shape
                    if shape.rank and shape.rank > 1 and rows in shape:
                        made.add(op.type)
            return logs

    model = Watch(model.layers)
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.AdamW(global_clipnorm=0.1)
    )
    model.compile(optimizer, **ZOO["mlp"].compile(), fastgrad=DEFERRED)
    rng = np.random.default_rng(0)
    for low in (0, 100_000):
        ids = rng.integers(low, low + 10, (46, 3))
        model.fit(ids, sums(ids), verbose=0)
    assert not made
    before = model.layers[0].get_weights()[0]
    assert np.isfinite(before).all()


def test_case_26_ten_ids_then_others():
    rng = np.random.default_rng(0)
    ids = np.concatenate(
        [rng.integers(0, 10, (24, 3)), rng.integers(900, 910, (24, 3))]
    )
    compare(
        lambda: keras.optimizers.Adam(0.01),
        build=bag(1000),
        data=(ids, sums(ids)),
        fit={"shuffle": False},
    )


REFUSED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "regularizer": ({"embeddings_regularizer": "l2"}, adam, "its regularizer"),
    "constraint": ({"embeddings_constraint": "max_norm"}, adam, "constraint"),
    "float64": ({"dtype": "float64"}, adam, "float64, not float32"),
    "ema": ({}, lambda: adam(use_ema=True), "averages all rows"),
    "accumulation": (
        {},
        lambda: adam(gradient_accumulation_steps=2),
        "gathers a gradient for all rows",
    ),
    "optimizer": ({}, lambda: keras.optimizers.Adadelta(), "no update by"),
    "shrinkage": (
        {},
        lambda: keras.optimizers.Ftrl(l2_shrinkage_regularization_strength=0.1),
        "Ftrl with shrinkage",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_updated_whole_says_why(name):
    arguments, optimizer, why = REFUSED[name]

    def build(kit: Kit) -> keras.Model:
        return kit.sequential(
            [
                keras.Input((3,), dtype="int32"),
                layers.Embedding(7, 4, **arguments),
                layers.Flatten(),
                layers.Dense(2),
            ]
        )

    ids = np.random.default_rng(0).integers(0, 7, (46, 3))
    stock = train(
        lambda: build(STOCK),
        (ids, sums(ids)),
        with_dense_gradients(optimizer()),
        **ZOO["mlp"].compile(),
    )
    with pytest.warns(UserWarning, match=why):
        ours = train(
            lambda: build(FAST),
            (ids, sums(ids)),
            optimizer(),
            fastgrad=DEFERRED,
            **ZOO["mlp"].compile(),
        )
    assert ours.fastgrad.strategy.sparse_update == "dense"
    assert why in " ".join(ours.fastgrad.explain().split())
    assert_same_training(stock, ours)


def test_lora_and_a_call_of_ones_own_are_left_to_keras():
    class Scaled(layers.Embedding):
        def call(self, ids: Any) -> Any:
            return super().call(ids) * 2.0

    def build(kit: Kit) -> keras.Model:
        model = kit.sequential(
            [
                keras.Input((3,), dtype="int32"),
                Scaled(7, 4, name="scaled"),
                layers.Flatten(),
                layers.Dense(2),
            ]
        )
        return model

    ids = np.random.default_rng(0).integers(0, 7, (46, 3))
    model = build(FAST)
    model.compile(adam(), **ZOO["mlp"].compile(), fastgrad=DEFERRED)
    text = " ".join(model.fastgrad.explain().split())
    assert "scaled: updated whole; Scaled has a `call` of its own" in text
    with pytest.warns(UserWarning, match="falls back"):
        model.fit(ids, sums(ids), verbose=0)


@pytest.mark.parametrize(
    "rows, mode", [(1_000, "dense"), (600_000, "deferred")]
)
def test_auto_takes_large_tables_by_the_row(rows, mode):
    model = bag(rows)(FAST)
    model.compile("adam", **ZOO["mlp"].compile(), fastgrad=True)
    assert model.fastgrad.strategy.sparse_update == mode


def test_a_saved_model_and_its_variables_are_plain(tmp_path):
    model = classifier(FAST)
    model.compile(adam(), **ZOO["mlp"].compile(), fastgrad=DEFERRED)
    model.fit(*visits(), verbose=0)
    weights = model.get_weights()
    model.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "exported"))
    x = [tf.constant(part) for part in visits(6)[0]]
    np.testing.assert_allclose(
        served.serve(x), model.predict_on_batch(x), rtol=1e-5, atol=1e-6
    )
    model.compile("sgd", **ZOO["mlp"].compile(), fastgrad=False)
    for variable in model.weights:
        assert type(variable) is keras.Variable
    for one, other in zip(weights, model.get_weights()):
        np.testing.assert_array_equal(one, other)
