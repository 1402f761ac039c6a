"""Fused updates: one kernel for each variable, on Keras's own slots.

Each optimizer has two plain functions. `x_scalars` works out, once a step,
the numbers that all variables share; `x_update` runs the kernel on one
variable and its slots. A kernel computes what Keras's `update_step` computes,
to float32 rounding; where TensorFlow's formula differs from Keras's, the
comment says by how much and what is done about it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Scalars = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The fused update of one kind of optimizer.

    Args:
        scalars: `scalars(optimizer, learning_rate)`, the shared numbers of a
            step as a dict of float32 scalars.
        update: `update(optimizer, index, variable, gradient, scalars)`, which
            updates `variable` and the slots with number `index` in place.
        slots: Names of the optimizer's lists of slots, which the kernel
            wants in the dtype of the variable.
        lacks: `lacks(optimizer)`, why these settings have no kernel, or
            `None`.
    """

    scalars: Callable[[Any, tf.Tensor], Scalars]
    update: Callable[..., None]
    slots: tuple[str, ...]
    lacks: Callable[[Any], str | None] = lambda optimizer: None


def rate_only(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    """The scalars of an update that needs the learning rate alone."""
    return {"learning_rate": tf.cast(learning_rate, tf.float32)}


# SGD: w <- w - a g. With momentum: m <- u m - a g, then w <- w + m, or with
# Nesterov w <- w + u m - a g. TensorFlow's Keras kernel is this formula.
def sgd_update(
    optimizer: Any,
    index: int,
    variable: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
) -> None:
    """Updates one variable as `keras.optimizers.SGD` does."""
    rate = scalars["learning_rate"]
    if optimizer.momentum == 0:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle, alpha=rate, delta=gradient
        )
        return
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle,
        accum=optimizer.momentums[index].value.handle,
        lr=rate,
        grad=gradient,
        momentum=tf.constant(optimizer.momentum, tf.float32),
        use_nesterov=optimizer.nesterov,
    )


# Adam (Kingma and Ba, 2015, the form before section 2.1): with
# b_t = sqrt(1 - B2^t) / (1 - B1^t),
#   m <- m + (1 - B1)(g - m),  v <- v + (1 - B2)(g^2 - v),
#   w <- w - a b_t m / (sqrt(v) + e).
# Keras takes c = 1 - B2 in Python's float64. The kernel takes it in float32
# from a rounded B2, where the difference has few digits left: c' is less than
# c by 1.3e-5 of it at B2 = 0.999, and more by 1.4e-3 at 0.99999. A steady g^2
# gives v = (1 - (1 - c)^t) g^2, so the kernel's v is Keras's times
#   f = (1 - (1 - c')^t) / (1 - (1 - c)^t),
# 1 - 1.3e-5 at first and 1 in the end. With a and e both multiplied by
# sqrt(f), the quotient is Keras's. The same holds for m, whose factor goes
# into a alone. What is left comes from a g^2 that changes: after a fall of the
# gradient by a factor of 1,000, moves differ by 1.4e-5 of themselves 3,000
# steps later and by 2.8e-5 another 7,000 later, when they have all but died.
_LARGEST_SHORTFALL = 2e-5


def shortfall(beta: float) -> float:
    """How much less (or, below 0, more) than 1 - `beta` the kernel takes.

    Relative to 1 - `beta`.
    """
    if beta == 1.0:
        return 0.0
    kept = float(np.float32(1.0) - np.float32(beta))
    return 1.0 - kept / (1.0 - beta)


def adam_lacks(optimizer: Any) -> str | None:
    """Says no where the shortfall above would show."""
    betas = (optimizer.beta_1, optimizer.beta_2)
    if not all(
        isinstance(beta, (int, float)) and 0 <= beta < 1 for beta in betas
    ):
        return "Adam has a kernel only with betas that are numbers below 1"
    if max(abs(shortfall(beta)) for beta in betas) <= _LARGEST_SHORTFALL:
        return None
    return (
        "Adam has a kernel only with betas whose distance from 1 float32 can "
        f"hold, up to about 0.999 (received {betas}); it updates as in Keras"
    )


def adam_scalars(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    """Rate and epsilon with their factors, and the powers of both betas."""
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    velocity = tf.sqrt(share_kept(optimizer.beta_2, step))
    momentum = share_kept(optimizer.beta_1, step)
    rate = tf.cast(learning_rate, tf.float32)
    return {
        "learning_rate": rate,
        "rate": rate * (velocity / momentum),
        "epsilon": optimizer.epsilon * velocity,
        "beta_1_power": tf.pow(tf.constant(optimizer.beta_1, tf.float32), step),
        "beta_2_power": tf.pow(tf.constant(optimizer.beta_2, tf.float32), step),
    }


def share_kept(beta: float, step: tf.Tensor) -> tf.Tensor:
    """The factor f above at `step`, for the moment that decays by `beta`."""
    # expm1 keeps the digits that 1 - (1 - c)^t would lose.
    if beta == 0:
        return tf.ones(())
    rounded = float(np.float32(beta))
    return tf.math.expm1(step * math.log(rounded)) / tf.math.expm1(
        step * math.log(beta)
    )


def adam_update(
    optimizer: Any,
    index: int,
    variable: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
) -> None:
    """Updates one variable as `keras.optimizers.Adam` and `AdamW` do."""
    arguments = {
        "var": variable.handle,
        "m": optimizer._momentums[index].value.handle,
        "v": optimizer._velocities[index].value.handle,
        "beta1_power": scalars["beta_1_power"],
        "beta2_power": scalars["beta_2_power"],
        "lr": scalars["rate"],
        "beta1": tf.constant(optimizer.beta_1, tf.float32),
        "beta2": tf.constant(optimizer.beta_2, tf.float32),
        "epsilon": scalars["epsilon"],
        "grad": gradient,
    }
    if optimizer.amsgrad:
        vhat = optimizer._velocity_hats[index].value.handle
        tf.raw_ops.ResourceApplyAdamWithAmsgrad(vhat=vhat, **arguments)
    else:
        tf.raw_ops.ResourceApplyAdam(**arguments)


# Adagrad: s <- s + g^2, w <- w - a g / sqrt(s + e). The kernel divides by
# sqrt(s) + c. With c = e / (2 sqrt(s0)), s0 the value that s starts from and
# never falls below, the two denominators agree to first order at s0 and
# differ by at most e / (8 s0) of themselves anywhere above it: 1.3e-7 at
# Keras's defaults, one unit in the last place.
def adagrad_lacks(optimizer: Any) -> str | None:
    """Says no where the bound above is not float32 rounding."""
    start = optimizer.initial_accumulator_value
    if start > 0 and optimizer.epsilon / (8.0 * start) <= 2e-7:
        return None
    return (
        "Adagrad has a kernel only with initial_accumulator_value of at least "
        f"{optimizer.epsilon / 1.6e-6:.2g} (received {start}); it updates as "
        "in Keras"
    )


def adagrad_update(
    optimizer: Any,
    index: int,
    variable: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
) -> None:
    """Updates one variable as `keras.optimizers.Adagrad` does."""
    start = math.sqrt(optimizer.initial_accumulator_value)
    tf.raw_ops.ResourceApplyAdagradV2(
        var=variable.handle,
        accum=optimizer._accumulators[index].value.handle,
        lr=scalars["learning_rate"],
        epsilon=tf.constant(optimizer.epsilon / (2.0 * start), tf.float32),
        grad=gradient,
    )


# RMSprop: v <- p v + (1 - p) g^2, d = a g / sqrt(v + e), with momentum
# u <- M u + d and w <- w - u, else w <- w - d; centered: g' <- p g' + (1 - p) g
# and v - g'^2 in place of v under the root. TensorFlow's kernels are these
# formulas, but always keep u, a slot that Keras lacks without momentum. There
# the step is compiled instead: XLA makes one pass of it.
def rmsprop_lacks(optimizer: Any) -> str | None:
    """Says no where float32 holds too few digits of 1 - p."""
    if not all(
        isinstance(value, (int, float))
        for value in (optimizer.rho, optimizer.momentum)
    ):
        return (
            "RMSprop has a kernel only with rho and momentum that are numbers"
        )
    if not optimizer.momentum > 0 or abs(shortfall(optimizer.rho)) <= 2e-6:
        return None
    return (
        "RMSprop with momentum has a kernel only with rho up to about 0.99 "
        f"(received {optimizer.rho}); it updates as in Keras"
    )


def rmsprop_update(
    optimizer: Any,
    index: int,
    variable: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
) -> None:
    """Updates one variable as `keras.optimizers.RMSprop` does."""
    rate = scalars["learning_rate"]
    slots = [optimizer._velocities[index].value]
    if optimizer.centered:
        slots.append(optimizer._average_gradients[index].value)
    if not optimizer.momentum > 0:
        step = rmsprop_step(optimizer.rho, optimizer.epsilon, variable.shape)
        values, move = step(
            [slot.read_value() for slot in slots], gradient, rate
        )
        for slot, value in zip(slots, values):
            slot.assign(value)
        variable.assign_sub(move)
        return
    arguments = {
        "var": variable.handle,
        "ms": slots[0].handle,
        "mom": optimizer._momentums[index].value.handle,
        "lr": rate,
        "rho": tf.constant(optimizer.rho, tf.float32),
        "momentum": tf.constant(optimizer.momentum, tf.float32),
        "epsilon": tf.constant(optimizer.epsilon, tf.float32),
        "grad": gradient,
    }
    if optimizer.centered:
        tf.raw_ops.ResourceApplyCenteredRMSProp(mg=slots[1].handle, **arguments)
    else:
        tf.raw_ops.ResourceApplyRMSProp(**arguments)


@functools.lru_cache(maxsize=512)
def rmsprop_step(rho: float, epsilon: float, shape: tf.TensorShape) -> Callable:
    """The compiled step without momentum, one for each shape of variable.

    Returns:
        A function of the slots (`v`, and `g'` where centered), the gradient
        and the rate, which returns the new slots and the move.
    """

    @tf.function(jit_compile=True, autograph=False)
    def step(
        slots: list[tf.Tensor], gradient: tf.Tensor, rate: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        velocity = rho * slots[0] + (1 - rho) * tf.square(gradient)
        if len(slots) == 1:
            spread, new_slots = velocity, [velocity]
        else:
            average = rho * slots[1] + (1 - rho) * gradient
            spread = velocity - tf.square(average)
            new_slots = [velocity, average]
        return new_slots, rate * gradient / tf.sqrt(spread + epsilon)

    return step


# Found by the function an optimizer updates with, so that a subclass keeps
# the kernel until it overrides `update_step`. AdamW shares Adam's.
KERNELS: dict[Callable, Kernel] = {
    keras.optimizers.SGD.update_step: Kernel(
        rate_only, sgd_update, ("momentums",)
    ),
    keras.optimizers.Adam.update_step: Kernel(
        adam_scalars,
        adam_update,
        ("_momentums", "_velocities", "_velocity_hats"),
        adam_lacks,
    ),
    keras.optimizers.Adagrad.update_step: Kernel(
        rate_only, adagrad_update, ("_accumulators",), adagrad_lacks
    ),
    keras.optimizers.RMSprop.update_step: Kernel(
        rate_only,
        rmsprop_update,
        ("_velocities", "_momentums", "_average_gradients"),
        rmsprop_lacks,
    ),
}
