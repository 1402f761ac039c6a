"""The step in replica context: two logical CPUs train as in stock Keras."""

import keras
import pytest
import tensorflow as tf
from training import assert_same_training, with_dense_gradients
from zoo import FAST, STOCK, ZOO

import keras_fastgrad as fg

OPTIMIZERS = {
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.005),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.05, momentum=0.9), initial_scale=8.0
    ),
}


def trained(kit, name, optimizer, **flag):
    member = ZOO[name]
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    with strategy.scope():
        keras.utils.set_random_seed(11)
        model = member.build(kit)
        model.compile(optimizer(), **member.compile(), **flag)
    model.fit(*member.data(), epochs=2, batch_size=8, verbose=0, shuffle=False)
    return model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["mlp", "recommender"])
def test_two_replicas_train_as_in_keras(name, optimizer):
    make = OPTIMIZERS[optimizer]
    stock = trained(STOCK, name, lambda: with_dense_gradients(make()))
    for flag in (True, fg.Strategy(steps_per_execution=4)):
        ours = trained(FAST, name, make, fastgrad=flag)
        assert_same_training(stock, ours)
        assert ours.fastgrad.strategy.optimizer_update == "fused"
        assert ours.fastgrad.telemetry()["steps"] == 12


def test_step_times_and_samples_on_two_replicas():
    member = ZOO["mlp"]
    monitor = fg.callbacks.StepTimeMonitor()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = member.build(FAST)
        model.compile("adam", **member.compile())
    history = model.fit(
        *member.data(), batch_size=8, epochs=2, verbose=0, callbacks=[monitor]
    )
    assert [row["steps"] for row in monitor.history] == [6, 6]
    assert history.history["samples_per_second"][1] > 0
