"""Counters of the training step and their reading."""

import tensorflow as tf


class StepMeter:
    """Counts the real training steps and the traces of a model's step.

    The counts come from where the steps are run, so they hold under any
    `steps_per_execution` and for a tail of an epoch. A count that is still a
    tensor is kept as it is until somebody asks, so that counting never makes
    Python wait for a device.

    Example:
    >>> meter = StepMeter()
    >>> meter.count(32)
    >>> meter.count(tf.constant(5))
    >>> meter.steps
    37
    """

    def __init__(self) -> None:
        self._steps = 0
        self._pending: list[tf.Tensor] = []
        self._traces = 0

    def count(self, steps: int | tf.Tensor) -> None:
        """Adds the steps of one execution."""
        if isinstance(steps, int):
            self._steps += steps
            return
        self._pending.append(steps)
        if len(self._pending) > 100:
            self._fold()

    def traced(self) -> None:
        """Notes that the step is being traced. Called in the traced code."""
        if not tf.executing_eagerly():
            self._traces += 1

    @property
    def steps(self) -> int:
        """Training steps run so far, as a plain int."""
        self._fold()
        return self._steps

    @property
    def traces(self) -> int:
        """How often the step was traced so far, as a plain int."""
        return self._traces

    def _fold(self) -> None:
        pending, self._pending = self._pending, []
        self._steps += sum(int(steps) for steps in pending)
