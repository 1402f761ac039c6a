"""Rules with a decaying denominator: Adam, AdamW, Adamax, Nadam.

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
from keras_fastgrad.optimizers.rows.series import Series, decay_series


def _power(optimizer: Any, beta: float) -> tf.Tensor:
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    return tf.pow(tf.constant(beta, tf.float32), step)


# Adam (Kingma and Ba, 2015): see the derivation in `series`. With AMSGrad the
# denominator is the largest v so far, which stays while v decays.
def _adam_slots(optimizer: Any) -> list[Any]:
    slots = [optimizer._momentums, optimizer._velocities]
    if getattr(optimizer, "amsgrad", False):
        slots.append(optimizer._velocity_hats)
    return slots


def _adam_scalars(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    rate = tf.cast(learning_rate, tf.float32)
    velocity = tf.sqrt(1 - _power(optimizer, optimizer.beta_2))
    momentum = 1 - _power(optimizer, optimizer.beta_1)
    return {"step_size": rate * velocity / momentum}


def _adam_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    m, v = rows.slots[:2]
    m = m + (gradient - m) * (1 - optimizer.beta_1)
    v = v + (tf.square(gradient) - v) * (1 - optimizer.beta_2)
    slots: tuple[tf.Tensor, ...] = (m, v)
    if optimizer.amsgrad:
        slots = (m, v, tf.maximum(rows.slots[2], v))
    move = m * scalars["step_size"] / (tf.sqrt(slots[-1]) + optimizer.epsilon)
    return Rows(rows.weights - move, slots)


def _adam_caught_up(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    m, v = rows.slots[:2]
    slots: tuple[tf.Tensor, ...] = (
        m * decayed(optimizer.beta_1, pause.steps),
        v * decayed(optimizer.beta_2, pause.steps),
    )
    if optimizer.amsgrad:
        slots = (*slots, rows.slots[2])
        v = rows.slots[2]
    root = tf.sqrt(v)
    inverse = 1 / (root + optimizer.epsilon)
    move = m * inverse * pause.polynomial(root * inverse)
    return Rows(pause.decay(rows.weights) - move, slots)


def _adam_series(optimizer: Any) -> Series | None:
    spread = 1.0 if optimizer.amsgrad else math.sqrt(optimizer.beta_2)
    return decay_series(optimizer.beta_1, spread)


ADAM = Rule(
    slots=_adam_slots,
    scalars=_adam_scalars,
    updated=_adam_updated,
    caught_up=_adam_caught_up,
    series=_adam_series,
)


# Adamax (Kingma and Ba, 2015, section 7.1): u <- max(b2 u, |g|) in the place
# of the root of v.
def _adamax_scalars(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    rate = tf.cast(learning_rate, tf.float32)
    return {"step_size": rate / (1 - _power(optimizer, optimizer.beta_1))}


def _adamax_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    m, u = rows.slots
    m = m + (gradient - m) * (1 - optimizer.beta_1)
    u = tf.maximum(optimizer.beta_2 * u, tf.abs(gradient))
    move = m * scalars["step_size"] / (u + optimizer.epsilon)
    return Rows(rows.weights - move, (m, u))


def _adamax_caught_up(optimizer: Any, rows: Rows, pause: Pause) -> Rows:
    m, u = rows.slots
    inverse = 1 / (u + optimizer.epsilon)
    move = m * inverse * pause.polynomial(u * inverse)
    slots = (
        m * decayed(optimizer.beta_1, pause.steps),
        u * decayed(optimizer.beta_2, pause.steps),
    )
    return Rows(pause.decay(rows.weights) - move, slots)


ADAMAX = Rule(
    slots=lambda optimizer: [optimizer._m, optimizer._u],
    scalars=_adamax_scalars,
    updated=_adamax_updated,
    caught_up=_adamax_caught_up,
    series=lambda optimizer: decay_series(optimizer.beta_1, optimizer.beta_2),
)


# Nadam (Dozat, 2016): u_t = b1 (1 - 0.5 * 0.96^t) in the place of b1 where m
# is weighed against g. Its epsilon is added to sqrt(v / (1 - b2^t)), so that
# it counts for less in each step: no fixed polynomial serves all rows.
def _nadam_scalars(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    now = optimizer.beta_1 * (1 - 0.5 * tf.pow(0.96, step))
    following = optimizer.beta_1 * (1 - 0.5 * tf.pow(0.96, step + 1))
    product = tf.convert_to_tensor(optimizer._u_product)
    return {
        "step_size": tf.cast(learning_rate, tf.float32),
        "of_momentum": following / (1 - product * following),
        "of_gradient": (1 - now) / (1 - product),
        "correction": 1 - _power(optimizer, optimizer.beta_2),
    }


def _nadam_updated(
    optimizer: Any, rows: Rows, gradient: tf.Tensor, scalars: Scalars
) -> Rows:
    m, v = rows.slots
    m = m + (gradient - m) * (1 - optimizer.beta_1)
    v = v + (tf.square(gradient) - v) * (1 - optimizer.beta_2)
    mean = scalars["of_momentum"] * m + scalars["of_gradient"] * gradient
    root = tf.sqrt(v / scalars["correction"])
    move = mean * scalars["step_size"] / (root + optimizer.epsilon)
    return Rows(rows.weights - move, (m, v))


NADAM = Rule(
    slots=_adam_slots,
    scalars=_nadam_scalars,
    updated=_nadam_updated,
    refuses=lambda optimizer: (
        "Nadam corrects its epsilon for bias anew in each step, so what a row "
        "owes is not known beforehand"
    ),
)
