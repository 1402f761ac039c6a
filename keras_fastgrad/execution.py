"""From one training step to the function that `fit` calls.

    rewrites on while tracing -> one step on each replica -> many steps a call

The rewrites of a strategy (precision, fused updates, summed gradients) stand
only inside `under_rewrites`, whose body runs when TensorFlow traces the step.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import (
    build_for,
    optional_to_none,
    reduce_per_replica,
)
from keras_fastgrad.gradients.rewrites import fast_gradients, rewrites_of
from keras_fastgrad.optimizers.fused import fused_updates
from keras_fastgrad.optimizers.row_sparse import summed_gradients
from keras_fastgrad.optimizers.rows.tables import Tables
from keras_fastgrad.precision import computing_in
from keras_fastgrad.strategy import Strategy
from keras_fastgrad.telemetry import StepMeter
from keras_fastgrad.trainable import TrainableState

Step = Callable[[Any], Any]
# Of an iterator and a count of steps; returns the last logs and the count.
Loop = Callable[[Any, int], tuple[Any, Any]]


class Cadence:
    """How many training steps a call of the train function takes.

    It outlives a change of strategy: `fit` has fixed the steps of a call
    before it lets callbacks change anything, and whichever function then
    runs has to take just those.

    Args:
        steps_per_call: Steps that a full call takes.
    """

    def __init__(self, steps_per_call: int) -> None:
        self.steps_per_call = steps_per_call
        self._fixed: int | None = None
        self._end_is_known = True

    @property
    def steps(self) -> int:
        """The steps of the next call."""
        return self._fixed or self.steps_per_call

    @property
    def is_one_sure_step(self) -> bool:
        """Whether the next call takes one step, and there is data for it."""
        return self.steps == 1 and self._end_is_known

    def fix_next(self, left: int | None, is_sure: bool) -> int:
        """Fixes the steps of the next call, at most `left`, and returns them.

        Args:
            left: Steps left in the epoch, or `None` where unknown.
            is_sure: Whether there is data for all of them.
        """
        self._end_is_known = is_sure
        full = self.steps_per_call
        self._fixed = full if left is None else min(full, left)
        return self._fixed

    @contextlib.contextmanager
    def of_one_fit(self) -> Iterator[None]:
        """While the context is open, calls are those of one `fit`."""
        outer, self._fixed = self._fixed, None
        try:
            yield
        finally:
            self._fixed = outer


@dataclasses.dataclass(frozen=True)
class Execution:
    """What a train function is made for, and what it counts with.

    Args:
        strategy: The decided strategy.
        sums_slices: Whether the parts of a row in a sparse gradient are
            summed.
        is_plain_step: Whether a step is ours: it calls the model on its inputs
            and takes the compiled loss.
        logs_from_state: Whether the logs are the metrics' results alone, so
            that only the last step of a call has to work them out.
        tables: Embeddings that are read and updated by the row.
        meter: Counts steps and traces.
        cadence: Says how many steps a call takes.
    """

    strategy: Strategy
    sums_slices: bool
    is_plain_step: bool
    logs_from_state: bool
    tables: Tables
    meter: StepMeter
    cadence: Cadence


def make_train_function(
    model: keras.Model, execution: Execution
) -> Callable[[Any], Any]:
    """Makes the function that `fit` calls with its iterator.

    Args:
        model: The compiled model; `model.train_step` is what is run.
        execution: What to run it as.

    Returns:
        A function of a `tf.data` iterator, a distributed one, or any Python
        iterator of batches, that runs the cadence's steps and returns the
        logs of the last.
    """
    one_step = compiled(
        model, replicated(model, under_rewrites(model, execution)), execution
    )
    many_steps = repeated(model, one_step, execution)

    def train_function(iterator: Any) -> Any:
        execution.tables.before_step()
        if isinstance(
            iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)
        ):
            logs, steps = many_steps(iterator, execution.cadence.steps)
            execution.meter.count(steps)
            return logs
        logs = None
        for _, data in zip(range(execution.cadence.steps), iterator):
            logs = one_step(data)
            execution.meter.count(1)
        if logs is None:
            raise StopIteration
        return logs

    return train_function


def under_rewrites(model: keras.Model, execution: Execution) -> Step:
    """The model's training step, with the strategy's rewrites around it."""
    trainable = TrainableState()
    strategy = execution.strategy

    def step(data: Any) -> Any:
        execution.meter.traced()
        if execution.is_plain_step and not model.built:
            # A rewrite has to find the layers, built as the model has them.
            build_for(model, keras.utils.unpack_x_y_sample_weight(data)[0])
        with contextlib.ExitStack() as rewrites:
            enter = rewrites.enter_context
            enter(trainable.held(model))
            enter(computing_in(model, strategy.precision))
            enter(fast_gradients(model, rewrites_of(strategy)))
            if strategy.optimizer_update == "fused":
                enter(fused_updates(model.optimizer))
            if execution.sums_slices:
                jit_compile = strategy.jit_compile is True
                enter(summed_gradients(model.optimizer, jit_compile))
            enter(execution.tables.in_step())
            return model.distribute_strategy.run(model.train_step, args=(data,))

    return step


def replicated(model: keras.Model, step: Step) -> Step:
    """The step with the logs of all replicas made into one."""

    def one_step(data: Any) -> Any:
        return reduce_per_replica(
            step(data), model.distribute_strategy, reduction="auto"
        )

    return one_step


def compiled(model: keras.Model, step: Step, execution: Execution) -> Step:
    """The step as a graph, under XLA where the strategy says so."""
    if not model.run_eagerly:
        step = tf.function(
            step,
            reduce_retracing=True,
            jit_compile=execution.strategy.jit_compile,
            autograph=False,
        )
    return optional_to_none(model, step)


def repeated(model: keras.Model, one_step: Step, execution: Execution) -> Loop:
    """A function of an iterator and a count that runs that many steps.

    It returns the logs of the last step and the number of steps that were
    run, which is lower where the data ended. It raises `OutOfRangeError` or
    `StopIteration` where there was no data at all.
    """
    if model.run_eagerly:
        return _eager_loop(one_step)
    if execution.logs_from_state:
        many = _loop_with_logs_after(model, one_step)
    else:
        many = _loop_with_logs_carried(one_step)
    return _one_or_many(one_step, many, execution.cadence)


def _eager_loop(one_step: Step) -> Loop:
    def run(iterator: Any, count: int) -> tuple[Any, int]:
        done, logs = 0, None
        while done < count:
            data = iterator.get_next_as_optional()
            if not data.has_value():
                break
            logs, done = one_step(data.get_value()), done + 1
        if not done:
            raise StopIteration
        return logs, done

    return run


def _one_or_many(one_step: Step, many: Loop, cadence: Cadence) -> Loop:
    # A plain fetch is the faster one, but where it finds the data at its end,
    # TensorFlow has by then run what needs no data: it has counted an
    # iteration and decayed the weights. The loops look before they step.
    @tf.function(reduce_retracing=True, autograph=False)
    def one(iterator: Any) -> Any:
        return one_step(iterator.get_next())

    def run(iterator: Any, count: int) -> tuple[Any, Any]:
        if cadence.is_one_sure_step:
            return one(iterator), 1
        return many(iterator, count)

    return run


def _while(
    one_step: Step, iterator: Any, count: tf.Tensor, state: tuple
) -> tuple:
    # Steps until `count`, or until the data ends. `state` is the steps done,
    # the next batch as an optional, and the last logs in a list that is empty
    # where nobody asks for them.
    def more(done: tf.Tensor, batch: Any, logs: list) -> tf.Tensor:
        return tf.logical_and(done < count, batch.has_value())

    def body(done: tf.Tensor, batch: Any, logs: list) -> tuple:
        new_logs = one_step(batch.get_value())
        following = tf.cond(
            done + 1 < count, iterator.get_next_as_optional, lambda: batch
        )
        return done + 1, following, [new_logs] if logs else []

    return tf.while_loop(more, body, state)


def _loop_with_logs_after(model: keras.Model, one_step: Step) -> Loop:
    # Results that nobody reads are pruned from the loop: metrics are updated
    # in each step and worked out once.
    @tf.function(reduce_retracing=True, autograph=False)
    def loop(iterator: Any, count: tf.Tensor) -> tuple[Any, tf.Tensor]:
        first = iterator.get_next_as_optional()
        done, _, _ = _while(one_step, iterator, count, (0, first, []))
        return model.get_metrics_result(), done

    def run(iterator: Any, count: int) -> tuple[Any, int]:
        logs, done = loop(iterator, tf.constant(count))
        if not int(done):
            raise StopIteration
        return logs, int(done)

    return run


def _loop_with_logs_carried(one_step: Step) -> Loop:
    # The first step stands before the loop and gives the logs their form.
    @tf.function(reduce_retracing=True, autograph=False)
    def loop(iterator: Any, first: Any, count: tf.Tensor) -> tuple:
        logs = one_step(first.get_value())
        second = tf.cond(
            count > 1, iterator.get_next_as_optional, lambda: first
        )
        done, _, carried = _while(
            one_step, iterator, count, (1, second, [logs])
        )
        return carried[0], done

    def run(iterator: Any, count: int) -> tuple[Any, Any]:
        first = iterator.get_next_as_optional()
        if not first.has_value():
            raise StopIteration
        return loop(iterator, first, tf.constant(count))

    return run
