"""Step times: true per step, compilation apart, in every log."""

import csv
import itertools
import math

import keras
import numpy as np
import pytest
from keras import layers
from zoo import FAST, STOCK

import keras_fastgrad as fg
from keras_fastgrad.callbacks.step_time import StepTimes

X = np.ones((53, 4), "float32")
Y = np.ones((53, 1), "float32")


def build(kit, **flag):
    model = kit.sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse", **flag)
    return model


def ticking():
    """A clock that gains one second each time it is read."""
    return itertools.count().__next__


def test_a_step_is_a_step_under_any_execution():
    times = StepTimes()
    times.add(seconds=1.0, steps=10, traced=False)
    times.add(seconds=0.6, steps=3, traced=False)
    times.add(seconds=50.0, steps=10, traced=True)
    assert times.percentile(50) == pytest.approx(100.0)
    assert times.percentile(95) == pytest.approx(200.0)
    assert (times.steps, times.retraces) == (23, 1)
    assert times.compile_seconds == 50.0
    assert times.timed_seconds == pytest.approx(1.6)
    assert math.isnan(StepTimes().percentile(50))


@pytest.mark.parametrize("kit", [STOCK, FAST], ids=["stock", "ours"])
def test_an_execution_of_many_steps(kit):
    monitor = fg.callbacks.StepTimeMonitor(clock=ticking())
    flag = {"steps_per_execution": 10}
    if kit is FAST:
        flag = {"fastgrad": fg.Strategy(steps_per_execution=10)}
    model = build(kit, **flag)
    model.fit(X, Y, batch_size=1, epochs=3, verbose=0, callbacks=[monitor])
    rows = monitor.history
    assert [row["steps"] for row in rows] == [53, 53, 53]
    assert [row["retraces"] for row in rows] == [1, 0, 0]
    assert [row["compile_seconds"] for row in rows] == [1, 0, 0]
    # A second a call: 100 ms for each of ten steps, 333 for the last three.
    assert rows[1]["step_time_ms"] == pytest.approx(100.0)
    assert rows[1]["step_time_p95_ms"] == pytest.approx(1000 / 3)
    assert rows[1]["samples_per_second"] == pytest.approx(53 / 6)
    assert rows[1]["slowdown"] == pytest.approx(1.0)


def test_a_retrace_for_the_tail_is_counted():
    monitor = fg.callbacks.StepTimeMonitor(clock=ticking())
    model = build(FAST)
    model.fit(X, Y, batch_size=10, verbose=0, callbacks=[monitor])
    assert monitor.history[0]["steps"] == 6
    assert (
        monitor.history[0]["retraces"] == model.fastgrad.telemetry()["traces"]
    )


def test_validation_is_not_counted():
    monitor = fg.callbacks.StepTimeMonitor(clock=ticking())
    model = build(FAST)
    history = model.fit(
        X,
        Y,
        batch_size=10,
        epochs=2,
        verbose=0,
        validation_data=(X, Y),
        validation_batch_size=1,
        callbacks=[monitor],
    ).history
    assert [row["steps"] for row in monitor.history] == [6, 6]
    assert history["samples_per_second"][1] == pytest.approx(53 / 6)


def test_every_logger_sees_the_figures(tmp_path, capsys):
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    model = build(FAST)
    history = model.fit(
        X,
        Y,
        epochs=2,
        verbose=2,
        callbacks=[log, fg.callbacks.StepTimeMonitor()],
    ).history
    with open(tmp_path / "log.csv") as file:
        rows = list(csv.DictReader(file))
    for name in ("step_time_ms", "samples_per_second"):
        assert name in rows[1]
        assert len(history[name]) == 2
        assert name in capsys.readouterr().out or name in rows[0]


def test_the_monitor_changes_nothing():
    runs = []
    for callbacks in ([], [fg.callbacks.StepTimeMonitor()]):
        keras.utils.set_random_seed(3)
        model = build(FAST)
        model.fit(X, Y, epochs=2, verbose=0, callbacks=callbacks)
        runs.append(model.get_weights())
    assert all(np.array_equal(*pair) for pair in zip(*runs))


def test_a_step_without_the_loss_metric():
    class Own(fg.FastGradModel):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            return {"zero": keras.ops.zeros(())}

    monitor = fg.callbacks.StepTimeMonitor()
    model = Own()
    model.compile("sgd", "mse")
    history = model.fit(X, Y, epochs=2, verbose=0, callbacks=[monitor]).history
    assert "step_time_ms" in history
    assert "samples_per_second" not in history
