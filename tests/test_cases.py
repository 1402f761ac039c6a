"""Situations from public bug reports; the numbers are those of CASES.md."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, distance, train
from zoo import FAST, STOCK, ZOO

import keras_fastgrad as fg

KITS = {"stock": STOCK, "ours": FAST}
RNG = np.random.default_rng(5)
X = RNG.standard_normal((53, 6)).astype("float32")
Y = X[:, :1] * X[:, 1:2]


def build(kit, **dense):
    return kit.sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, "tanh", **dense),
            layers.Dense(1, dtype="float32"),
        ]
    )


def both(make, data, optimizer, flag=True, **arguments):
    """The same training with stock Keras and with ours."""
    return tuple(
        train(
            lambda kit=kit: make(kit), data, optimizer(), **arguments, **extra
        )
        for kit, extra in ((STOCK, {}), (FAST, {"fastgrad": flag}))
    )


def sgd():
    return keras.optimizers.SGD(0.05, momentum=0.9)


class Hooks(keras.callbacks.Callback):
    """Notes every batch hook."""

    def __init__(self):
        super().__init__()
        self.ends = []
        self.iterations = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(batch)
        self.iterations.append(int(self.model.optimizer.iterations))


def test_3_a_loss_scale_factor_leaves_update_and_logs_alone():
    def adam(factor):
        return keras.optimizers.Adam(0.01, loss_scale_factor=factor)

    reference = train(lambda: build(STOCK), (X, Y), adam(None), loss="mse")
    ours = train(
        lambda: build(FAST, dtype="mixed_float16"),
        (X, Y),
        adam(8.0),
        loss="mse",
        auto_scale_loss=False,
    )
    for one, other in zip(reference.weights, ours.weights):
        assert distance(one.numpy(), other.numpy()) < 1e-2
    assert (
        distance(
            reference.history.history["loss"], ours.history.history["loss"]
        )
        < 1e-2
    )


@pytest.mark.parametrize("base", ["subclass", "mixin"])
def test_4_a_step_of_the_user_scales_the_loss_once(base):
    class OwnStep(FAST.base if base == "subclass" else keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
                scaled = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, self.trainable_weights)
            self.optimizer.apply(gradients, self.trainable_weights)
            return {"loss": loss}

    def make(kit):
        cls = keras.Model if kit is STOCK else OwnStep
        if kit is FAST and base == "mixin":
            cls = type("Mixed", (fg.FastGradMixin, OwnStep), {})
        inputs = keras.Input((6,))
        return cls(inputs, layers.Dense(1)(inputs))

    stock, ours = both(
        make,
        (X, Y),
        lambda: keras.optimizers.LossScaleOptimizer(sgd(), 1024.0),
        loss="mse",
    )
    for one, other in zip(stock.weights, ours.weights):
        assert distance(one.numpy(), other.numpy()) < 1e-5


@pytest.mark.parametrize("flag", [fg.Strategy(jit_compile=True), True])
def test_19_20_lookups_run_as_a_graph_and_are_named(flag):
    words = np.array(["a", "b", "c", "b", "a"] * 10)[:, None]
    targets = (words[:, 0] == "b").astype("float32")

    def make(kit):
        text = keras.Input((1,), dtype="string")
        ids = layers.StringLookup(vocabulary=["a", "b", "c"], name="find")(text)
        numbers = layers.IntegerLookup(
            vocabulary=[1, 2, 3], name="again", output_mode="one_hot"
        )(ids)
        return kit.functional(text, layers.Dense(1)(numbers))

    runs = []
    for kit in (STOCK, FAST):
        keras.utils.set_random_seed(1)
        model = make(kit)
        extra = {"fastgrad": flag} if kit is FAST else {}
        model.compile(sgd(), "mse", **extra)
        data = tf.data.Dataset.from_tensor_slices((words, targets)).batch(8)
        if kit is FAST and flag is not True:
            with pytest.warns(UserWarning, match="layer 'find'"):
                model.fit(data, shuffle=False, verbose=0)
        else:
            model.fit(data, shuffle=False, verbose=0)
        runs.append(model)
    assert_same_training(*runs)
    ours = runs[1]
    assert ours.fastgrad.strategy.jit_compile is False
    assert ours.fastgrad.telemetry()["steps"] == 7
    if flag is not True:
        assert "'find'" in ours.fastgrad.explain()


@pytest.mark.parametrize("steps", [1, 2])
def test_22_the_tail_is_trained_under_xla(steps):
    stock, ours = both(
        build,
        (X[:10], Y[:10]),
        sgd,
        fg.Strategy(jit_compile=True, steps_per_execution=steps),
        batch_size=4,
        loss="mse",
    )
    assert int(ours.optimizer.iterations) == 9
    assert_same_training(stock, ours)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_24_more_steps_an_execution_than_batches(jit_compile):
    model = build(FAST)
    model.compile(
        sgd(),
        "mse",
        fastgrad=fg.Strategy(steps_per_execution=33, jit_compile=jit_compile),
    )
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    model.fit(data, epochs=2, shuffle=False, verbose=0)
    unknown = data.filter(lambda x, y: True)
    with pytest.warns(UserWarning, match="ran out of data"):
        model.fit(unknown, epochs=2, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 4 * 14


@pytest.mark.parametrize("steps", [1, 3])
def test_data_of_unknown_length_ends_without_a_step(steps):
    """Keras counts a step, and decays the weights, where no batch was left."""
    model = build(FAST)
    optimizer = keras.optimizers.AdamW(0.0, weight_decay=0.5)
    model.compile(
        optimizer, "mse", fastgrad=fg.Strategy(steps_per_execution=steps)
    )
    data = tf.data.Dataset.from_tensor_slices((X[:56], Y[:56])).batch(8)
    with pytest.warns(UserWarning, match="ran out of data"):
        model.fit(
            data.filter(lambda x, y: True), epochs=3, shuffle=False, verbose=0
        )
    assert int(optimizer.iterations) == 3 * 7


def test_28_the_loss_of_an_epoch_is_weighted_by_batch_size():
    x, y = np.zeros((3, 6), "float32"), np.array([[1.0], [1.0], [4.0]])
    for flag in (False, True, fg.Strategy(steps_per_execution=2)):
        model = build(FAST, bias_initializer="zeros")
        model.compile(keras.optimizers.SGD(0.0), "mse", fastgrad=flag)
        history = model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
        assert history.history["loss"][0] == pytest.approx(18.0 / 3.0)


def test_29_dict_outputs_map_as_in_keras():
    member = ZOO["two_inputs"]
    stock, ours = both(member.build, member.data(), sgd, **member.compile())
    assert_same_training(stock, ours)
    assert "value_mae" in ours.history.history


@pytest.mark.parametrize("steps", [1, 3])
def test_30_added_losses_count_once(steps):
    class Penalty(layers.Layer):
        def call(self, x):
            self.add_loss(0.1 * tf.reduce_mean(tf.square(x)))
            return x

    def make(kit):
        class Own(kit.base):
            def compute_loss(
                self,
                x=None,
                y=None,
                y_pred=None,
                sample_weight=None,
                training=True,
            ):
                loss = super().compute_loss(
                    x, y, y_pred, sample_weight, training
                )
                return loss + 0.01 * tf.reduce_sum(tf.abs(y_pred))

        inputs = keras.Input((6,))
        hidden = layers.Dense(8, "tanh", kernel_regularizer="l2")(inputs)
        return Own(inputs, layers.Dense(1)(Penalty()(hidden)))

    stock, ours = both(
        make, (X, Y), sgd, fg.Strategy(steps_per_execution=steps), loss="mse"
    )
    assert_same_training(stock, ours)


@pytest.mark.parametrize("at", ["batch", "epoch"])
def test_31_a_callback_switches_the_strategy(at):
    strategies = [
        fg.Strategy(optimizer_update="keras"),
        fg.Strategy(steps_per_execution=3),
        fg.Strategy(steps_per_execution=2, jit_compile=True),
        False,
        "exact",
    ]

    class Switch(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.waiting = list(strategies)
            self.seen = []

        def switch(self):
            if self.waiting:
                self.model.fastgrad.use(self.waiting.pop(0))
                self.seen.append(str(self.model.fastgrad.strategy))

        def on_train_batch_end(self, batch, logs=None):
            if at == "batch":
                self.switch()

        def on_epoch_end(self, epoch, logs=None):
            if at == "epoch":
                self.switch()

    def adam():
        return keras.optimizers.Adam(0.01)

    stock = train(lambda: build(STOCK), (X, Y), adam(), loss="mse", epochs=6)
    switch, hooks = Switch(), Hooks()
    ours = train(
        lambda: build(FAST),
        (X, Y),
        adam(),
        loss="mse",
        epochs=6,
        callbacks=[hooks, switch],
    )
    fused = "jit_compile=False, optimizer_update=fused, steps_per_execution="
    assert switch.seen == [
        "jit_compile=False, optimizer_update=keras, steps_per_execution=1",
        f"{fused}3",
        "jit_compile=True, optimizer_update=fused, steps_per_execution=2",
        "jit_compile=False, gradients=keras, optimizer_update=keras, "
        "sparse_update=dense, steps_per_execution=1",
        f"{fused}1",
    ]
    # Each batch once: 53 samples in eights are seven steps an epoch.
    assert int(ours.optimizer.iterations) == 42
    assert hooks.iterations == [
        7 * sum(end == 6 for end in hooks.ends[:index]) + end + 1
        for index, end in enumerate(hooks.ends)
    ]
    for one, other in zip(stock.weights, ours.weights):
        assert distance(one.numpy(), other.numpy()) < 1e-4
    assert (
        distance(stock.history.history["loss"], ours.history.history["loss"])
        < 1e-4
    )


def test_32_the_last_execution_is_as_long_as_what_is_left(tmp_path):
    hooks, monitor = Hooks(), fg.callbacks.StepTimeMonitor()
    saved = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "{batch}.weights.h5"),
        save_freq=20,
        save_weights_only=True,
    )
    model = build(FAST)
    model.compile(sgd(), "mse", fastgrad=fg.Strategy(steps_per_execution=10))
    model.fit(X, Y, batch_size=1, verbose=0, callbacks=[hooks, saved, monitor])
    assert hooks.ends == [9, 19, 29, 39, 49, 52]
    assert hooks.iterations == [10, 20, 30, 40, 50, 53]
    assert monitor.history[0]["steps"] == 53
    assert len(list(tmp_path.iterdir())) == 2

    endless = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1).repeat()
    model.fit(endless, steps_per_epoch=53, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 106


@pytest.mark.parametrize("again", [False, True], ids=["on", "compile"])
def test_33_freezing_after_a_fit(again):
    """Frozen weights go on until `compile`, as in Keras, tail or no tail."""

    def run(kit):
        keras.utils.set_random_seed(1)
        inner = keras.Sequential(
            [
                keras.Input((6,)),
                # A bias before a norm has no gradient but rounding.
                layers.Dense(5, use_bias=False),
                layers.BatchNormalization(),
            ]
        )
        inputs = keras.Input((6,))
        model = kit.functional(inputs, layers.Dense(1)(inner(inputs)))
        model.compile(sgd(), "mse")
        model.fit(X[:48], Y[:48], batch_size=8, shuffle=False, verbose=0)
        inner.trainable = False
        if again:
            model.compile(sgd(), "mse")
        before = inner.get_weights()
        model.fit(X[:48], Y[:48], batch_size=8, shuffle=False, verbose=0)
        moved = [distance(*pair) for pair in zip(before, inner.get_weights())]
        if kit is FAST:
            # A tail of five is traced anew, and follows the same rule.
            model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
            after = inner.get_weights()
            assert (max(map(distance, before, after)) == 0) == again
        return model, moved

    (_, stock_moved), (ours, our_moved) = run(STOCK), run(FAST)
    assert (max(stock_moved) == 0) == again
    assert np.allclose(stock_moved, our_moved, rtol=1e-3)
    assert not ours.layers[1].trainable
    assert not ours.layers[1].layers[0].kernel.trainable


class DenseByHand(layers.Layer):
    """A product whose gradient its author wrote."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8))

    def call(self, inputs):
        @tf.custom_gradient
        def product(x, kernel):
            def gradient(upstream):
                return (
                    tf.matmul(upstream, kernel, transpose_b=True),
                    tf.matmul(x, upstream, transpose_a=True),
                )

            return tf.matmul(x, kernel), gradient

        return product(inputs, tf.convert_to_tensor(self.kernel))


@pytest.mark.parametrize("way", ["layers", "strategy"])
def test_case_23_a_gradient_of_ones_own_in_bfloat16(way):
    def steps(policy, flag):
        model = train(
            lambda: FAST.sequential(
                [
                    keras.Input((6,)),
                    DenseByHand(dtype=policy),
                    layers.Dense(1, dtype="float32"),
                ]
            ),
            (X, Y),
            sgd(),
            loss="mse",
            fastgrad=flag,
        )
        return [each.numpy() for each in model.weights]

    wide = steps("float32", True)
    if way == "layers":
        half = steps("mixed_bfloat16", True)
    else:
        half = steps("float32", fg.Strategy(precision="mixed_bfloat16"))
    for one, other in zip(wide, half):
        assert other.dtype == np.float32
        assert 0 < distance(one, other) < 0.02
