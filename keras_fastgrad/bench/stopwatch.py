"""Times the executions of a training loop, whichever library runs it."""

import time
from collections.abc import Callable, Sequence

from keras_fastgrad.callbacks.step_time import StepTimes


class Stopwatch:
    """Notes how long each execution of one or more steps took.

    The time of an execution runs from the end of the one before it, so that
    Python between the steps counts; in the first of an epoch, from its own
    beginning. Reads time from `clock` alone.

    Example:
    >>> clock = iter([0.0, 5.0, 5.4]).__next__
    >>> watch = Stopwatch(clock)
    >>> watch.start()
    >>> watch.stop(steps=10)
    >>> watch.start()
    >>> watch.stop(steps=4)
    >>> [(steps, round(seconds, 1)) for steps, seconds in watch.executions]
    [(10, 5.0), (4, 0.4)]

    Args:
        clock: Function that gives seconds. Defaults to `time.perf_counter`.

    Attributes:
        executions: `(steps, seconds)` of each.
        first_ended: The clock when the first one ended, or `None`.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.executions: list[tuple[int, float]] = []
        self.first_ended: float | None = None
        self._clock = clock
        self._began: float | None = None

    def epoch_begins(self) -> None:
        """What comes before the first execution of an epoch is not timed."""
        self._began = None

    def start(self) -> None:
        """An execution begins."""
        if self._began is None:
            self._began = self._clock()

    def stop(self, steps: int) -> None:
        """An execution of `steps` training steps has ended."""
        now = self._clock()
        if self.first_ended is None:
            self.first_ended = now
        if self._began is not None and steps > 0:
            self.executions.append((steps, now - self._began))
        self._began = now


def step_times(executions: Sequence[tuple[int, float]]) -> StepTimes:
    """The statistics of executions given as `(steps, seconds)`."""
    times = StepTimes()
    for steps, seconds in executions:
        times.add(seconds, steps, traced=False)
    return times


def compile_seconds(began: float, warmup: Stopwatch, later: StepTimes) -> float:
    """What the first execution took over what its steps take later.

    Args:
        began: The clock when training was called for.
        warmup: The stopwatch of the first training.
        later: The times of the steps after it.

    Returns:
        Seconds of tracing and compiling, 0 where none can be told.
    """
    if warmup.first_ended is None or not warmup.executions:
        return 0.0
    usual = warmup.executions[0][0] * later.percentile(50) / 1e3
    return max(0.0, warmup.first_ended - began - usual)


def step_ms(executions: Sequence[tuple[int, float]]) -> list[list[float]]:
    """`[last step, milliseconds a step]` of each execution, steps from 1."""
    pairs: list[list[float]] = []
    done = 0
    for steps, seconds in executions:
        done += steps
        pairs.append([done, round(seconds / steps * 1e3, 4)])
    return pairs
