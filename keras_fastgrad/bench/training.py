"""Trains a workload through `fit`, and notes what it took."""

import dataclasses
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_fastgrad.bench.correctness import sampled
from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.kits import Kit, kit_of
from keras_fastgrad.bench.stopwatch import (
    Stopwatch,
    compile_seconds,
    step_times,
)
from keras_fastgrad.bench.workloads import Workload
from keras_fastgrad.bench.workloads.workload import SEED
from keras_fastgrad.strategy import Strategy

_LARGE_TABLE = 2**24


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How many steps are run, as `fit` counts them."""

    steps_per_epoch: int
    epochs: int

    @property
    def steps(self) -> int:
        """Timed steps in all."""
        return self.steps_per_epoch * self.epochs


@dataclasses.dataclass(frozen=True)
class Trained:
    """What one training gave.

    Args:
        strategy: What ran, in words.
        executions: `(steps, seconds)` of the timed part.
        compile_seconds: From calling the first `fit` to the end of its first
            execution, less what such an execution takes later.
        loss: Mean loss of the last epoch.
        weights: After the warm-up, or `None` where their layout is another.
        note: Anything a reader of the row has to know.
        switches: `[step, strategy, reason]` for each change of strategy.
    """

    strategy: str
    executions: list[tuple[int, float]]
    compile_seconds: float
    loss: float
    weights: list[np.ndarray] | None
    note: str = ""
    switches: list[list[Any]] = dataclasses.field(default_factory=list)


def schedule(workload: Workload, steps: int | None) -> Schedule:
    """Lays `steps` out in epochs of the workload's distinct batches.

    Steps beyond an epoch are rounded to whole epochs.
    """
    wanted = workload.steps if steps is None else steps
    per_epoch = max(1, min(wanted, workload.batches))
    return Schedule(per_epoch, max(1, round(wanted / per_epoch)))


def train(job: Job, workload: Workload) -> Trained:
    """Trains with a Keras-like engine.

    Args:
        job: What to measure.
        workload: Its workload, resized where the job says so.
    """
    kit = kit_of(job.engine)
    strategy = Strategy.parse(job.setting)
    plan = schedule(workload, job.steps)
    batches = max(plan.steps_per_epoch, job.warmup)
    data = workload.make_data(batches * workload.batch_size)
    model = built(job, workload, kit, strategy)
    if job.perturbation:
        perturb(model, job.perturbation)
    warmup, watch = Stopwatch(), Stopwatch()

    def fit(steps: int, epochs: int, timer: Stopwatch) -> Any:
        return model.fit(
            **first_batches(data, workload.batch_size, steps),
            epochs=epochs,
            verbose=0,
            shuffle=False,
            callbacks=[_callback(kit, timer, steps)],
        )

    if job.dense_gradients:
        give_dense_gradients(model.optimizer)
    began = time.perf_counter()
    fit(job.warmup, 1, warmup)
    weights = (
        None
        if job.engine == "tf-keras"
        else [sampled(weight) for weight in model.weights]
    )
    history = fit(plan.steps_per_epoch, plan.epochs, watch)
    return Trained(
        strategy=_in_words(model, job),
        executions=watch.executions,
        compile_seconds=compile_seconds(
            began, warmup, step_times(watch.executions)
        ),
        loss=float(history.history["loss"][-1]),
        weights=weights,
    )


def built(job: Job, workload: Workload, kit: Kit, strategy: Strategy) -> Any:
    """The compiled model of a job, with the weights of the fixed seed."""
    kit.keras.utils.set_random_seed(SEED)
    arguments = workload.compile_arguments(kit)
    if job.engine == "fastgrad":
        arguments["fastgrad"] = strategy
    else:
        arguments |= _stock_arguments(job, kit, strategy)
    model = workload.build_model(kit)
    model.compile(**arguments)
    return model


def perturb(model: Any, share: float) -> None:
    """Moves each weight at random by about `share` of itself.

    Large tables stay as they are: to move them would cost their memory.
    """
    draw = np.random.default_rng(SEED)
    for weight in model.trainable_variables:
        values = np.asarray(weight)
        if values.size < _LARGE_TABLE:
            noise = draw.standard_normal(values.shape, dtype="float32")
            weight.assign(values * (1 + share * noise))


def give_dense_gradients(optimizer: Any) -> None:
    """Lets a Keras optimizer have every sparse gradient made dense.

    An id that repeats in a batch is summed thereby, before anything is
    squared or clipped. Written apart from the package's own way of doing so,
    which is measured against it.
    """
    apply = optimizer.apply

    def apply_dense(gradients: Any, trainable_variables: Any = None) -> None:
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        apply(dense, trainable_variables)

    # Past Keras's tracking of attributes.
    optimizer.__dict__["apply"] = apply_dense


def _stock_arguments(job: Job, kit: Kit, strategy: Strategy) -> dict:
    # Three fields of a strategy have a counterpart in stock Keras.
    if strategy.precision is not None:
        if job.engine == "tf-keras":
            kit.keras.mixed_precision.set_global_policy(strategy.precision)
        else:
            keras.config.set_dtype_policy(strategy.precision)
    arguments: dict[str, Any] = {"run_eagerly": job.engine == "keras-eager"}
    if strategy.jit_compile != "auto":
        arguments["jit_compile"] = strategy.jit_compile
    if strategy.steps_per_execution != "auto":
        arguments["steps_per_execution"] = strategy.steps_per_execution
    return arguments


def first_batches(data: Any, batch_size: int, steps: int) -> dict[str, Any]:
    """What `fit` is given so that an epoch has the first `steps` batches."""
    if isinstance(data, tf.data.Dataset):
        return {"x": data.take(steps)}
    x, y = keras.tree.map_structure(
        lambda array: array[: steps * batch_size], tuple(data)
    )
    return {"x": x, "y": y, "batch_size": batch_size}


def _callback(kit: Kit, watch: Stopwatch, steps_per_epoch: int) -> Any:
    class Timer(kit.keras.callbacks.Callback):  # type: ignore[name-defined]
        """Starts and stops the watch."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """Batches are numbered from 0 in each epoch."""
            watch.epoch_begins()
            self.last = -1

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """An execution begins."""
            watch.start()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """An execution ends; Keras may count beyond the epoch."""
            last = min(batch, steps_per_epoch - 1)
            watch.stop(last - self.last)
            self.last = last

    return Timer()


def _in_words(model: Any, job: Job) -> str:
    if job.engine == "fastgrad":
        return str(model.fastgrad.strategy)
    return "run_eagerly" if job.engine == "keras-eager" else job.setting
