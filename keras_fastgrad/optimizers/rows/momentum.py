"""Rules whose slots hold the learning rate already: SGD, RMSprop.

The formulas are those of Keras 3.15's `update_step`, in its order of
operations; what a row owes for k steps without a gradient follows from them
with g = 0.
"""

from typing import Any

import tensorflow as tf

from keras_fastgrad.optimizers.rows.rule import (
    Pause,
    Rows,
    Rule,
    Scalars,
    as_they_are,
    decayed,
)
from keras_fastgrad.optimizers.rows.series import NO_MOVE, decay_series


def _constant(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    # The rate is in the momentum already: each step counts the same.
    rate = tf.cast(learning_rate, tf.float32)
    return {"rate": rate, "step_size": tf.ones(())}


# SGD: m <- u m - a g, w <- w + m; Nesterov: w <- w + u m - a g. Without a
# gradient w moves by u m, u^2 m, ..., one power more with Nesterov.
def _sgd_slots(optimizer: Any) -> list[Any]:
    return [optimizer.momentums] if optimizer.momentum != 0 else []


def _sgd_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    if not rows.slots:
        move = gradient * scalars["rate"]
        return Rows(rows.weights - move, ())
    u, rate = optimizer.momentum, scalars["rate"]
    m = rows.slots[0] * u - gradient * rate
    move = m * u - gradient * rate if optimizer.nesterov else m
    return Rows(rows.weights + move, (m,))


def _sgd_caught_up(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    if not rows.slots:
        return as_they_are(optimizer, rows, pause)
    u, (m,) = optimizer.momentum, rows.slots
    lead = u if optimizer.nesterov else 1.0
    weights = pause.decay(rows.weights) + m * (lead * pause.polynomial())
    return Rows(weights, (m * decayed(u, pause.steps),))


def _has_slots(optimizer: Any) -> bool:
    return bool(optimizer.momentum != 0)


SGD = Rule(
    slots=_sgd_slots,
    scalars=_constant,
    updated=_sgd_updated,
    caught_up=_sgd_caught_up,
    series=lambda optimizer: decay_series(optimizer.momentum),
    pauses=_has_slots,
)


# RMSprop: v <- p v + (1 - p) g^2, d = a g / sqrt(v + e), with momentum
# n <- u n + d, w <- w - n, else w <- w - d; centered subtracts the square of
# the decaying mean of g from v. Without a gradient d is 0.
def _rmsprop_slots(optimizer: Any) -> list[Any]:
    slots = [optimizer._velocities]
    if optimizer.momentum > 0:
        slots.append(optimizer._momentums)
    if optimizer.centered:
        slots.append(optimizer._average_gradients)
    return slots


def _rmsprop_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    p, slots = optimizer.rho, list(rows.slots)
    slots[0] = p * slots[0] + (1 - p) * tf.square(gradient)
    spread = slots[0] + optimizer.epsilon
    if optimizer.centered:
        slots[-1] = p * slots[-1] + (1 - p) * gradient
        spread = slots[0] - tf.square(slots[-1]) + optimizer.epsilon
    move = scalars["rate"] * gradient / tf.sqrt(spread)
    if optimizer.momentum > 0:
        move = slots[1] = optimizer.momentum * slots[1] + move
    return Rows(rows.weights - move, tuple(slots))


def _rmsprop_caught_up(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    slots, weights = list(rows.slots), pause.decay(rows.weights)
    kept = decayed(optimizer.rho, pause.steps)
    slots[0] = slots[0] * kept
    if optimizer.centered:
        slots[-1] = slots[-1] * kept
    if optimizer.momentum > 0:
        weights = weights - slots[1] * pause.polynomial()
        slots[1] = slots[1] * decayed(optimizer.momentum, pause.steps)
    return Rows(weights, tuple(slots))


RMSPROP = Rule(
    slots=_rmsprop_slots,
    scalars=_constant,
    updated=_rmsprop_updated,
    caught_up=_rmsprop_caught_up,
    series=lambda optimizer: (
        decay_series(optimizer.momentum) if optimizer.momentum > 0 else NO_MOVE
    ),
)
