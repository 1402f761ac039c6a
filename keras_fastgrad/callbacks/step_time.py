"""Watches how long a training step takes."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np


@dataclasses.dataclass
class StepTimes:
    """Step times of one stretch of training, worked out from executions.

    Takes times as arguments and reads no clock. An execution in which the
    step was traced counts as compilation and is kept apart.

    Example:
    >>> times = StepTimes()
    >>> times.add(seconds=9.0, steps=10, traced=True)
    >>> times.add(seconds=0.5, steps=10, traced=False)
    >>> times.add(seconds=0.6, steps=3, traced=False)
    >>> round(times.percentile(50), 1), times.compile_seconds, times.steps
    (50.0, 9.0, 23)
    """

    seconds_per_step: list[float] = dataclasses.field(default_factory=list)
    steps_timed: list[int] = dataclasses.field(default_factory=list)
    compile_seconds: float = 0.0
    retraces: int = 0
    steps: int = 0

    def add(self, seconds: float, steps: int, traced: bool) -> None:
        """Takes the wall time of one execution of `steps` steps."""
        self.steps += steps
        if traced:
            self.compile_seconds += seconds
            self.retraces += 1
        elif steps > 0:
            self.seconds_per_step.append(seconds / steps)
            self.steps_timed.append(steps)

    def percentile(self, percent: float) -> float:
        """Step time in milliseconds that `percent` of steps stay within.

        Each step of an execution counts with the execution's mean. NaN where
        nothing was timed.
        """
        if not self.seconds_per_step:
            return float("nan")
        times = np.asarray(self.seconds_per_step)
        order = np.argsort(times)
        share = np.cumsum(np.asarray(self.steps_timed)[order])
        at = np.searchsorted(share, percent / 100.0 * share[-1])
        return float(times[order][min(at, len(times) - 1)] * 1e3)

    @property
    def timed_seconds(self) -> float:
        """Wall time of all executions that did not compile."""
        return float(np.dot(self.seconds_per_step, self.steps_timed))


class StepTimeMonitor(keras.callbacks.Callback):
    """Adds true step times to the logs of each epoch.

    A step is a training step, also where one call from Python runs many of
    them (`steps_per_execution`), and also the last, shorter call of an epoch.
    Time in other callbacks and in validation is not counted; time spent
    waiting for input is. Works with any Keras model; on one without
    `keras_fastgrad` the first execution of a fit is taken for compilation,
    and steps are read off the batch index.

    Samples are those of the loss metric. Where another callback calls
    `evaluate` within an epoch, Keras adds that to the same metric, and the
    samples of that epoch are off as its loss is.

    The logs gain `step_time_ms` (median) and `samples_per_second`, which the
    progress bar, `CSVLogger`, `TensorBoard` and `History` then show.

    Example:
    >>> import numpy as np, keras, keras_fastgrad as fg
    >>> model = fg.FastGradSequential([keras.Input((4,)),
    ...                                keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> monitor = fg.callbacks.StepTimeMonitor()
    >>> history = model.fit(np.ones((64, 4)), np.ones((64, 1)), epochs=2,
    ...                     verbose=0, callbacks=[monitor])
    >>> len(history.history["step_time_ms"]), monitor.history[1]["steps"]
    (2, 2)

    Args:
        clock: Function that gives seconds. Defaults to `time.perf_counter`.

    Attributes:
        history: A list with a dict for each epoch: `epoch`, `steps`,
            `step_time_ms`, `step_time_p95_ms`, `samples_per_second` (absent
            where the loss metric is not in use), `compile_seconds`,
            `retraces`, and `slowdown`, the median against that of the first
            epoch with timed steps.
    """

    # `fit` of a FastGradModel calls callbacks with this mark first.
    adds_to_logs = True

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self.history: list[dict[str, float]] = []
        self._clock = clock
        self._baseline = float("nan")

    def on_train_begin(self, logs: Mapping | None = None) -> None:
        """Starts to watch a fit."""
        self._counter = _counter_of(self.model, self.params)

    def on_epoch_begin(self, epoch: int, logs: Mapping | None = None) -> None:
        """Starts an epoch's figures."""
        self._times = StepTimes()
        self._samples = 0.0
        self._counted = 0.0
        self._counter.epoch_begins()

    def on_train_batch_begin(
        self, batch: int, logs: Mapping | None = None
    ) -> None:
        """Starts the clock of an execution."""
        self._began = self._clock()

    def on_train_batch_end(
        self, batch: int, logs: Mapping | None = None
    ) -> None:
        """Stops the clock of an execution."""
        seconds = self._clock() - self._began
        steps, traced = self._counter.execution_ended(batch)
        self._times.add(seconds, steps, traced)

    def on_test_begin(self, logs: Mapping | None = None) -> None:
        """Reads the samples so far, before evaluation resets the count."""
        if hasattr(self, "_times"):
            self._samples += self._count() - self._counted

    def on_test_end(self, logs: Mapping | None = None) -> None:
        """Leaves the samples of the evaluation out."""
        self._counted = self._count()

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Adds the figures to the logs."""
        self._samples += self._count() - self._counted
        row = self._row(epoch)
        self.history.append(row)
        if logs is not None:
            for name in ("step_time_ms", "samples_per_second"):
                if name in row:
                    logs[name] = row[name]

    def _count(self) -> float:
        tracker = getattr(self.model, "_loss_tracker", None)
        return float(tracker.count.numpy()) if tracker is not None else 0.0

    def _row(self, epoch: int) -> dict[str, float]:
        times = self._times
        median = times.percentile(50)
        if np.isnan(self._baseline):
            self._baseline = median
        row = {
            "epoch": epoch,
            "steps": times.steps,
            "step_time_ms": median,
            "step_time_p95_ms": times.percentile(95),
            "compile_seconds": times.compile_seconds,
            "retraces": times.retraces,
            "slowdown": median / self._baseline,
        }
        if self._samples and times.timed_seconds:
            timed_share = sum(times.steps_timed) / times.steps
            row["samples_per_second"] = (
                self._samples * timed_share / times.timed_seconds
            )
        return row


class _MeterCounter:
    """Counts by the meter of a FastGradModel."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._steps = handle.meter.steps
        self._traces = handle.meter.traces

    def epoch_begins(self) -> None:
        """Nothing to do: the meter runs on."""

    def execution_ended(self, batch: int) -> tuple[int, bool]:
        """Steps of the execution, and whether it traced."""
        meter = self._handle.meter
        steps, traces = meter.steps, meter.traces
        done, traced = steps - self._steps, traces > self._traces
        self._steps, self._traces = steps, traces
        return done, traced


class _BatchCounter:
    """Counts by the batch index, which is all that stock Keras gives."""

    def __init__(self, steps_per_epoch: int | None) -> None:
        self._steps_per_epoch = steps_per_epoch
        self._is_first = True

    def epoch_begins(self) -> None:
        """Batches are numbered from 0 in each epoch."""
        self._last = -1

    def execution_ended(self, batch: int) -> tuple[int, bool]:
        """Steps of the execution, and whether it is the first of the fit."""
        if self._steps_per_epoch:
            batch = min(batch, self._steps_per_epoch - 1)
        done, self._last = batch - self._last, batch
        first, self._is_first = self._is_first, False
        return done, first


def _counter_of(
    model: keras.Model, params: Mapping[str, Any] | None
) -> _MeterCounter | _BatchCounter:
    handle = getattr(model, "fastgrad", None)
    if handle is not None and handle.is_on:
        return _MeterCounter(handle)
    return _BatchCounter((params or {}).get("steps"))
