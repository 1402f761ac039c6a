"""Changing the strategy, the model or the callbacks while training runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import distance

import keras_fastgrad as fg

X = np.random.default_rng(2).standard_normal((64, 4)).astype("float32")
Y = X[:, :1]
MANY, ONE = fg.Strategy(steps_per_execution=4), fg.Strategy()


def build(flag=True, **arguments):
    keras.utils.set_random_seed(4)
    model = fg.FastGradSequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse", fastgrad=flag, **arguments)
    return model


def endless():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat()


class UseAt(keras.callbacks.Callback):
    """Switches at a batch hook of the given step."""

    def __init__(self, hook, step, flag):
        super().__init__()
        self.due = True
        setattr(self, hook, lambda batch, logs=None: self.switch(batch))
        self.step, self.flag = step, flag

    def switch(self, batch):
        if self.due and batch >= self.step:
            self.due = False
            self.model.fastgrad.use(self.flag)


@pytest.mark.parametrize("hook", ["on_train_batch_begin", "on_train_batch_end"])
@pytest.mark.parametrize("step", [0, 7])
@pytest.mark.parametrize(
    "before, after",
    [(MANY, ONE), (ONE, MANY), (False, MANY), (MANY, False), (False, True)],
    ids=str,
)
@pytest.mark.parametrize("compiled", [1, 4])
def test_no_step_is_lost_or_added(hook, step, before, after, compiled):
    model = build(before, steps_per_execution=compiled)
    switch = UseAt(hook, step, after)
    model.fit(
        endless(),
        steps_per_epoch=8,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[switch],
    )
    stock = build(False)
    stock.fit(endless(), steps_per_epoch=8, epochs=2, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 16
    for one, other in zip(stock.get_weights(), model.get_weights()):
        assert distance(one, other) < 1e-5


def test_a_fit_inside_a_fit():
    class Nested(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 4:
                self.model.fit(X[:8], Y[:8], batch_size=8, verbose=0)

    model = build(MANY)
    model.fit(X[:48], Y[:48], batch_size=8, verbose=0, callbacks=[Nested()])
    assert int(model.optimizer.iterations) == 7


@pytest.mark.parametrize("eager", [False, True])
def test_evaluate_and_predict_inside_a_fit(eager):
    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.evaluate(X, Y, batch_size=8, verbose=0)
            self.model.predict(X, batch_size=8, verbose=0)

    model = build(MANY, run_eagerly=eager)
    model.fit(X[:56], Y[:56], batch_size=8, verbose=0, callbacks=[Looks()])
    assert int(model.optimizer.iterations) == 7


def test_an_eager_step_follows_a_freeze_at_once():
    class Freeze(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                self.model.layers[0].kernel.trainable = False
                self.kernel = self.model.layers[0].kernel.numpy()

    model, freeze = build(run_eagerly=True), Freeze()
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=[freeze])
    assert distance(freeze.kernel, model.layers[0].kernel.numpy()) == 0


def test_training_goes_on_after_an_interrupt():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    model = build(MANY)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[Stop()])
    model.fit(X, Y, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 4 + 8
    model.train_on_batch(X, Y)
    assert int(model.optimizer.iterations) == 13


def test_two_optimizers_in_one_step():
    class Pair(fg.FastGradModel):
        def __init__(self):
            super().__init__()
            self.one, self.two = layers.Dense(1), layers.Dense(1)
            self.second = keras.optimizers.Adam(0.1)

        def build(self, shape):
            self.one.build(shape)
            self.two.build(shape)

        def train_step(self, data):
            x, y = data
            for layer, optimizer in (
                (self.one, self.optimizer),
                (self.two, self.second),
            ):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(layer(x) - y))
                weights = layer.trainable_weights
                optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

    ends = []
    for flag in (False, MANY):
        keras.utils.set_random_seed(1)
        model = Pair()
        model.build((None, 4))
        model.compile(keras.optimizers.Adam(0.1), fastgrad=flag)
        model.optimizer.build(model.one.trainable_weights)
        model.second.build(model.two.trainable_weights)
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
        ends.append(model.get_weights())
    assert max(map(distance, *ends)) < 1e-5


def test_the_loss_scale_is_saved_with_the_strategy_that_brought_it(tmp_path):
    model = build(fg.Strategy(precision="mixed_float16"))
    model.fit(X, Y, verbose=0)
    model.fastgrad.use(True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.fastgrad.flag is True
    assert int(loaded.optimizer.iterations) == 2
    for one, other in zip(
        model.optimizer.variables, loaded.optimizer.variables
    ):
        assert distance(one.numpy(), other.numpy()) == 0


def test_refused_loss_scale_leaves_the_model_as_it_was():
    model = build(MANY)
    optimizer = model.optimizer
    with pytest.raises(ValueError, match="LossScaleOptimizer"):
        model.compile(
            "adam",
            "mse",
            auto_scale_loss=False,
            fastgrad=fg.Strategy(precision="mixed_float16"),
        )
    assert model.optimizer is optimizer
    assert model.fastgrad.flag == MANY


def test_a_compiled_sequential_can_be_cloned():
    """Keras's cloning makes a plain `keras.Sequential` of it."""
    clone = keras.models.clone_model(build(MANY))
    assert type(clone) is keras.Sequential
    clone.fit(X, Y, verbose=0)


def test_the_handle_before_compile_can_be_read():
    model = fg.FastGradSequential([keras.Input((4,)), layers.Dense(1)])
    assert "no optimizer yet" in model.fastgrad.explain()
    assert model.fastgrad.telemetry()["iterations"] == 0


@pytest.mark.parametrize("flag", [False, True])
def test_the_monitor_sees_all_steps_of_a_switched_fit(flag):
    monitor = fg.callbacks.StepTimeMonitor()
    model = build(MANY)
    switch = UseAt("on_train_batch_end", 3, flag)
    model.fit(
        X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[monitor, switch]
    )
    assert [row["steps"] for row in monitor.history] == [8, 8]


def test_the_monitor_in_a_callback_list_without_parameters():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = fg.callbacks.StepTimeMonitor()
    callbacks = keras.callbacks.CallbackList(
        [monitor], add_history=True, model=model
    )
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=callbacks)
    assert monitor.history[0]["steps"] == 8
