"""Rules that need the learning rates alone: Adagrad, Ftrl, Lion.

The formulas are those of Keras 3.15's `update_step`, in its order of
operations; what a row owes for k steps without a gradient follows from them
with g = 0.
"""

import math
from typing import Any

import tensorflow as tf

from keras_fastgrad.optimizers.rows.rule import (
    Pause,
    Rows,
    Rule,
    Scalars,
    decayed,
)


def _rate(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    return {"step_size": tf.cast(learning_rate, tf.float32)}


# Adagrad: s <- s + g^2, w <- w - a g / sqrt(s + e).
def _adagrad_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    total = rows.slots[0] + tf.square(gradient)
    move = scalars["step_size"] * gradient / tf.sqrt(total + optimizer.epsilon)
    return Rows(rows.weights - move, (total,))


ADAGRAD = Rule(
    slots=lambda optimizer: [optimizer._accumulators],
    scalars=_rate,
    updated=_adagrad_updated,
    pauses=lambda optimizer: False,
)


# FTRL (McMahan et al., 2013): w is worked out anew in each step, from slots
# that only a gradient changes and from the rate of that step. Of the steps
# that a row sat out, only the last one's rate is left to see.
def _ftrl_weights(
    optimizer: Any, total: tf.Tensor, linear: tf.Tensor, rate: tf.Tensor
) -> tf.Tensor:
    l1 = optimizer.l1_regularization_strength
    l2 = optimizer.l2_regularization_strength + optimizer.beta / (2.0 * rate)
    root = tf.pow(total, -optimizer.learning_rate_power)
    clipped = tf.clip_by_value(linear, -l1, l1)
    return (clipped - linear) / (root / rate + 2 * l2)


def _ftrl_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    total, linear = rows.slots
    rate, power = scalars["step_size"], -optimizer.learning_rate_power
    new_total = total + tf.square(gradient)
    fall = (tf.pow(new_total, power) - tf.pow(total, power)) / rate
    linear = linear + (gradient - fall * rows.weights)
    weights = _ftrl_weights(optimizer, new_total, linear, rate)
    return Rows(weights, (new_total, linear))


def _ftrl_caught_up(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    # Before the first step there is no rate; a division by it is not used.
    rate = tf.where(pause.latest > 0, pause.latest, tf.ones_like(pause.latest))
    total, linear = rows.slots
    weights = _ftrl_weights(optimizer, total, linear, rate)
    sat_out = pause.steps > 0
    return Rows(tf.where(sat_out, weights, rows.weights), rows.slots)


def _ftrl_refuses(optimizer: Any) -> str | None:
    if optimizer.l2_shrinkage_regularization_strength:
        return "Ftrl with shrinkage moves each row by its own weight"
    if optimizer.weight_decay:
        return "Ftrl works a weight out anew, which undoes weight decay"
    return None


FTRL = Rule(
    slots=lambda optimizer: [optimizer._accumulators, optimizer._linears],
    scalars=_rate,
    updated=_ftrl_updated,
    caught_up=_ftrl_caught_up,
    refuses=_ftrl_refuses,
    rests=False,
)


# Lion (Chen et al., 2023): w <- w - a sign(b1 m + (1 - b1) g), then
# m <- b2 m + (1 - b2) g. Without a gradient w moves by a each step, until m
# has become so small that float32 holds it as zero.
_SMALLEST = 1.1754944e-38


def _lion_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    (m,), b1, b2 = rows.slots, optimizer.beta_1, optimizer.beta_2
    move = scalars["step_size"] * tf.sign(m * b1 + gradient * (1 - b1))
    return Rows(rows.weights - move, (m * b2 + gradient * (1 - b2),))


def _lion_caught_up(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    (m,) = rows.slots
    # m before the n-th of these steps is b2^(n - 1) times what it is now.
    size = tf.maximum(optimizer.beta_1 * tf.abs(m), _SMALLEST)
    left = tf.math.log(_SMALLEST / size)
    alive = tf.floor(left / math.log(optimizer.beta_2)) + 1
    end = pause.start + tf.minimum(alive, pause.steps)
    sums = tf.gather(pause.totals, tf.cast(end, tf.int32)) - tf.gather(
        pause.totals, tf.cast(pause.start, tf.int32)
    )
    move = tf.sign(m) * tf.cast(sums, tf.float32)
    kept = m * decayed(optimizer.beta_2, pause.steps)
    return Rows(pause.decay(rows.weights) - move, (kept,))


def _lion_refuses(optimizer: Any) -> str | None:
    if 0 < optimizer.beta_2 < 1:
        return None
    return f"Lion needs a beta_2 between 0 and 1 (has {optimizer.beta_2})"


LION = Rule(
    slots=lambda optimizer: [optimizer._momentums],
    scalars=_rate,
    updated=_lion_updated,
    caught_up=_lion_caught_up,
    refuses=_lion_refuses,
    uses_totals=True,
)
