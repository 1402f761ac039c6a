"""What a row update is made of: the row, what it owes, and a rule."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_fastgrad.optimizers.rows.series import NO_MOVE, Series

Scalars = dict[str, tf.Tensor]


class Rows(NamedTuple):
    """Some rows of a table with their optimizer slots.

    Args:
        weights: Tensor of shape `[rows, width]`.
        slots: Tensors of the same shape.
    """

    weights: tf.Tensor
    slots: tuple[tf.Tensor, ...]


class Pause(NamedTuple):
    """The steps that each of some rows sat out.

    Args:
        steps: How many, a float32 tensor of shape `[rows, 1]`.
        series: The polynomial of step sizes that `Series` describes, of shape
            `[rows, terms]`.
        start: The step a row was last touched at, shape `[rows, 1]`, an index
            into `totals`.
        latest: The latest step size, a scalar.
        shrink: What weight decay has left of a weight, of shape `[rows, 1]`;
            `None` without weight decay.
        totals: For each step, the sum of all step sizes until then, each
            divided by what weight decay left at its step, times what it has
            left by now; float64, `[steps]`. `None` for a rule that does not
            use them.
    """

    steps: tf.Tensor
    series: tf.Tensor
    start: tf.Tensor
    latest: tf.Tensor
    shrink: tf.Tensor | None = None
    totals: tf.Tensor | None = None

    def decay(self, weights: tf.Tensor) -> tf.Tensor:
        """What weight decay has left of `weights`."""
        return weights if self.shrink is None else self.shrink * weights

    def polynomial(self, q: tf.Tensor | None = None) -> tf.Tensor:
        """The series at `q` of shape `[rows, width]`; at 0 without."""
        terms = self.series.shape[1]
        if terms == 0:
            return tf.zeros_like(self.steps)
        total = self.series[:, terms - 1 : terms]
        for term in range(terms - 2, -1, -1):
            total = self.series[:, term : term + 1] + q * total
        return total


def no_refusal(optimizer: Any) -> str | None:
    """Says yes to every setting."""
    return None


def as_they_are(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    """Rows that move only when a gradient reaches them."""
    return Rows(pause.decay(rows.weights), rows.slots)


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one kind of optimizer updates a row.

    A dense update moves every row in every step. What it does to a row
    without a gradient is known beforehand, and `caught_up` does it for many
    steps at once.

    Args:
        slots: Of an optimizer: its lists of slots, in the order in which
            `Rows.slots` has them.
        scalars: `scalars(optimizer, learning_rate)`, the numbers of a step
            that all rows share. `"step_size"` is what enters the series and
            the totals.
        updated: `updated(optimizer, rows, gradient, scalars)`, the rows after
            a step with a gradient of shape `[rows, width]`.
        caught_up: `caught_up(optimizer, rows, pause)`, the rows after the
            steps that they sat out.
        series: Of an optimizer: how a step counts for rows touched before.
        refuses: Of an optimizer: why it has no such update, or `None`.
        uses_totals: Whether `caught_up` reads `Pause.totals`.
        rests: Whether a row whose slots are all zero stays where it is.
        pauses: Whether a row changes without a gradient at all.
    """

    slots: Callable[[Any], list[Any]]
    scalars: Callable[[Any, tf.Tensor], Scalars]
    updated: Callable[[Any, Rows, tf.Tensor, Scalars], Rows]
    caught_up: Callable[[Any, Rows, Pause], Rows] = as_they_are
    series: Callable[[Any], Series | None] = lambda optimizer: NO_MOVE
    refuses: Callable[[Any], str | None] = no_refusal
    uses_totals: bool = False
    rests: bool = True
    pauses: Callable[[Any], bool] = lambda optimizer: True


def decayed(factor: float, steps: tf.Tensor) -> tf.Tensor:
    """`factor` to the power of `steps`, from the logarithm in float64.

    The power of the rounded factor would be off by 6e-8 a step.
    """
    if factor == 0:
        return tf.cast(tf.equal(steps, 0), steps.dtype)
    return tf.exp(steps * tf.constant(math.log(factor), steps.dtype))
