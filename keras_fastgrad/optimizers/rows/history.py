"""The steps since a table was last whole, as far as its rows need them."""

import numpy as np
import tensorflow as tf

from keras_fastgrad.optimizers.rows.rule import Pause
from keras_fastgrad.optimizers.rows.series import Series

# Then all rows are brought up to date, and the history begins anew: once in
# 32,768 steps costs little and keeps every number small.
LENGTH = 1 << 15
# Weight decay has left e^-200 of a weight: far below what float32 adds up.
_LEAST_LOG_LEFT = -200.0


class History:
    """Step sizes and weight decay of each step, ready for any row.

    Everything is a float variable, step counts among them: a whole number up
    to `LENGTH` is exact, and every device has the operations.

    Args:
        series: How a step counts for the rows touched before it.
        decays: Whether there is weight decay.
        uses_totals: Whether rows need the sum of all step sizes.
        length: Steps after which the history is full.
    """

    def __init__(
        self,
        series: Series,
        decays: bool,
        uses_totals: bool,
        length: int = LENGTH,
    ) -> None:
        self._steps, self._terms = series.steps, series.terms
        self._length, self._uses_totals = length, uses_totals
        # Newest row first, as it is added: one step later is one row up.
        self._weights = series.weights[::-1].astype(np.float32)
        self._now = _variable(())
        self._latest = _variable(())
        # Row s + steps - 1 is that of rows touched at step s.
        self._series = (
            _variable((length + series.steps, series.terms))
            if series.terms
            else None
        )
        sums = (length + 1,)
        self._log_left = _variable(sums, tf.float64) if decays else None
        self._totals = _variable(sums, tf.float64) if uses_totals else None

    @property
    def now(self) -> tf.Tensor:
        """Steps since the table was whole, a float32 scalar."""
        return self._now.read_value()

    def is_full(self) -> tf.Tensor:
        """Whether the table has to be made whole before the next step."""
        full = self._now >= float(self._length)
        if self._log_left is not None:
            left = tf.gather(self._log_left, tf.cast(self._now, tf.int32))
            full = tf.logical_or(full, left < _LEAST_LOG_LEFT)
        return full

    def pause(self, last: tf.Tensor) -> Pause:
        """What rows owe.

        Args:
            last: The steps at which they were last touched, shape `[rows]`.
        """
        start, now = last[:, None], self.now
        at = tf.cast(last, tf.int32)
        shrink = totals = None
        if self._totals is not None:
            totals = self._totals.read_value()
        series = tf.zeros((tf.shape(last)[0], 0))
        if self._series is not None:
            series = tf.gather(self._series, at + (self._steps - 1))
        if self._log_left is not None:
            log_left = self._log_left.read_value()
            log_now = tf.gather(log_left, tf.cast(now, tf.int32))
            if totals is not None:
                totals *= tf.exp(log_now)
            shrink = _ratio(log_now, tf.gather(log_left, at))
            # A series has the decay of its own steps; what came later is due.
            end = tf.minimum(at + self._steps, tf.cast(now, tf.int32))
            series *= _ratio(log_now, tf.gather(log_left, end))
        return Pause(
            steps=now - start,
            series=series,
            start=start,
            latest=self._latest.read_value(),
            shrink=shrink,
            totals=totals,
        )

    def advance(self, step_size: tf.Tensor, decay: tf.Tensor | None) -> None:
        """Adds a step.

        Args:
            step_size: As the optimizer's rule says.
            decay: The share of a weight that weight decay takes first, or
                `None`.
        """
        now = tf.cast(self._now, tf.int32)
        if self._series is not None:
            rows = now + tf.range(self._steps)
            added = step_size * self._weights
            if decay is not None:
                added += (1 - decay) * tf.gather(self._series, rows)
                self._series.scatter_update(tf.IndexedSlices(added, rows))
            else:
                self._series.scatter_add(tf.IndexedSlices(added, rows))
        left = tf.zeros((), tf.float64)
        if self._log_left is not None and decay is not None:
            left = tf.gather(self._log_left, now)
            left += tf.math.log1p(-tf.cast(decay, tf.float64))
            self._log_left.scatter_update(tf.IndexedSlices(left, now + 1))
        if self._totals is not None:
            total = tf.gather(self._totals, now)
            total += tf.cast(step_size, tf.float64) * tf.exp(-left)
            self._totals.scatter_update(tf.IndexedSlices(total, now + 1))
        self._latest.assign(step_size)
        self._now.assign_add(1.0)

    def clear(self) -> None:
        """Begins anew: all rows are up to date."""
        for variable in (
            self._now,
            self._series,
            self._log_left,
            self._totals,
        ):
            if variable is not None:
                variable.assign(tf.zeros(variable.shape, variable.dtype))


def _ratio(log_now: tf.Tensor, log_then: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.exp(log_now - log_then), tf.float32)[:, None]


def _variable(
    shape: tuple[int, ...], dtype: tf.DType = tf.float32
) -> tf.Variable:
    return tf.Variable(tf.zeros(shape, dtype), trainable=False)
