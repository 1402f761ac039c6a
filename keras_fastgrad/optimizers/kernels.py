"""Fused updates: one kernel for each variable, on Keras's own slots.

Each optimizer has two plain functions. `x_scalars` works out, once a step,
the numbers that all variables share; `x_update` runs the kernel on one
variable and its slots. A kernel computes what Keras's `update_step` computes,
to float32 rounding; where TensorFlow's formula differs from Keras's, the
comment says by how much and what is done about it.
"""

import dataclasses
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
        lacks: `lacks(optimizer)`, why these settings have no kernel, or
            `None`.
    """

    scalars: Callable[[Any, tf.Tensor], Scalars]
    update: Callable[..., None]
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
    rate = tf.cast(scalars["learning_rate"], variable.dtype)
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
        momentum=tf.cast(optimizer.momentum, variable.dtype),
        use_nesterov=optimizer.nesterov,
    )


# Adam (Kingma and Ba, 2015, the form before section 2.1): with
# b_t = sqrt(1 - B2^t) / (1 - B1^t),
#   m <- m + (1 - B1)(g - m),  v <- v + (1 - B2)(g^2 - v),
#   w <- w - a b_t m / (sqrt(v) + e).
# Keras takes 1 - B2 in Python's float64. The kernel takes it in float32 from
# a rounded B2, where the difference has few digits left: at 0.999 it is
# smaller by r = 1.3e-5, and so is v. With a and e both multiplied by
# sqrt(1 - r), the quotient is the one that Keras computes, and the weights
# agree to rounding; v itself stays smaller by r, which no float32 B2 can help.
def adam_scalars(optimizer: Any, learning_rate: tf.Tensor) -> Scalars:
    """The learning rate and the powers of both betas at this step."""
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    beta_1 = tf.constant(optimizer.beta_1, tf.float32)
    beta_2 = tf.constant(optimizer.beta_2, tf.float32)
    return {
        "learning_rate": tf.cast(learning_rate, tf.float32),
        "beta_1_power": tf.pow(beta_1, step),
        "beta_2_power": tf.pow(beta_2, step),
    }


def velocity_shortfall(beta_2: float, dtype: tf.DType) -> float:
    """sqrt((1 - B2 in `dtype`) / (1 - B2)): 1 less half of r above."""
    if beta_2 == 1.0:
        return 1.0
    one = np.ones((), dtype.as_numpy_dtype)
    kept = float(one - dtype.as_numpy_dtype(beta_2))
    return math.sqrt(kept / (1.0 - beta_2))


def adam_update(
    optimizer: Any,
    index: int,
    variable: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
) -> None:
    """Updates one variable as `keras.optimizers.Adam` and `AdamW` do."""
    dtype = variable.dtype
    shortfall = velocity_shortfall(optimizer.beta_2, dtype)
    arguments = {
        "var": variable.handle,
        "m": optimizer._momentums[index].value.handle,
        "v": optimizer._velocities[index].value.handle,
        "beta1_power": tf.cast(scalars["beta_1_power"], dtype),
        "beta2_power": tf.cast(scalars["beta_2_power"], dtype),
        "lr": tf.cast(scalars["learning_rate"] * shortfall, dtype),
        "beta1": tf.constant(optimizer.beta_1, dtype),
        "beta2": tf.constant(optimizer.beta_2, dtype),
        "epsilon": tf.constant(optimizer.epsilon * shortfall, dtype),
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
        f"{optimizer.epsilon / 1.6e-6:.2g} (received {start}); runs as Keras"
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
        lr=tf.cast(scalars["learning_rate"], variable.dtype),
        epsilon=tf.constant(optimizer.epsilon / (2.0 * start), variable.dtype),
        grad=gradient,
    )


# RMSprop: v <- p v + (1 - p) g^2, d = a g / sqrt(v + e), with momentum
# u <- M u + d and w <- w - u, else w <- w - d; centered: g' <- p g' + (1 - p) g
# and v - g'^2 in place of v under the root. TensorFlow's kernels are these
# formulas, but always keep u, a slot that Keras lacks without momentum. There
# the step is compiled instead: XLA makes one pass of it.
def rmsprop_update(
    optimizer: Any,
    index: int,
    variable: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
) -> None:
    """Updates one variable as `keras.optimizers.RMSprop` does."""
    dtype = variable.dtype
    rate = tf.cast(scalars["learning_rate"], dtype)
    velocity = optimizer._velocities[index].value
    average = None
    if optimizer.centered:
        average = optimizer._average_gradients[index].value
    if not optimizer.momentum > 0:
        _rmsprop_without_momentum(
            optimizer, variable, velocity, average, gradient, rate
        )
        return
    arguments = {
        "var": variable.handle,
        "ms": velocity.handle,
        "mom": optimizer._momentums[index].value.handle,
        "lr": rate,
        "rho": tf.constant(optimizer.rho, dtype),
        "momentum": tf.constant(optimizer.momentum, dtype),
        "epsilon": tf.constant(optimizer.epsilon, dtype),
        "grad": gradient,
    }
    if average is not None:
        tf.raw_ops.ResourceApplyCenteredRMSProp(mg=average.handle, **arguments)
    else:
        tf.raw_ops.ResourceApplyRMSProp(**arguments)


def _rmsprop_without_momentum(
    optimizer: Any,
    variable: tf.Variable,
    velocity: tf.Variable,
    average: tf.Variable | None,
    gradient: tf.Tensor,
    rate: tf.Tensor,
) -> None:
    rho, epsilon = optimizer.rho, optimizer.epsilon

    @tf.function(jit_compile=True, autograph=False)
    def step(
        velocity: tf.Tensor, average: tf.Tensor, gradient: tf.Tensor, rate: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        velocity = rho * velocity + (1 - rho) * tf.square(gradient)
        spread = velocity
        if optimizer.centered:
            average = rho * average + (1 - rho) * gradient
            spread = velocity - tf.square(average)
        move = rate * gradient / tf.sqrt(spread + epsilon)
        return velocity, average, move

    placeholder = tf.zeros((), variable.dtype)
    new_velocity, new_average, move = step(
        velocity.read_value(),
        placeholder if average is None else average.read_value(),
        gradient,
        rate,
    )
    velocity.assign(new_velocity)
    if average is not None:
        average.assign(new_average)
    variable.assign_sub(move)


# Found by the function an optimizer updates with, so that a subclass keeps
# the kernel until it overrides `update_step`. AdamW shares Adam's.
KERNELS: dict[Callable, Kernel] = {
    keras.optimizers.SGD.update_step: Kernel(rate_only, sgd_update),
    keras.optimizers.Adam.update_step: Kernel(adam_scalars, adam_update),
    keras.optimizers.Adagrad.update_step: Kernel(
        rate_only, adagrad_update, adagrad_lacks
    ),
    keras.optimizers.RMSprop.update_step: Kernel(rate_only, rmsprop_update),
}
