"""Puts the fused updates under Keras's own `apply` while a step is traced.

Clipping, weight decay, EMA, accumulation, constraints and loss scaling all
happen in `apply`, around the two methods that are shadowed here.
"""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import (
    TFOptimizer,
    innermost_optimizer,
    shadowed,
)
from keras_fastgrad.optimizers.kernels import KERNELS, Kernel

# What a kernel goes past: whoever overrides one of these wants it called.
_GONE_PAST = ("_backend_update_step", "assign", "assign_add", "assign_sub")


def no_kernel_reason(optimizer: Any) -> str | None:
    """Why `optimizer` has no fused update, in words for its user.

    Args:
        optimizer: A Keras optimizer, also one wrapped for loss scaling.

    Returns:
        A sentence, or `None` if it has one.
    """
    optimizer = innermost_optimizer(optimizer)
    kernel = _kernel_of(optimizer)
    if kernel is None:
        return (
            f"optimizer {type(optimizer).__name__} has no fused kernel; "
            "it updates as in Keras"
        )
    return kernel.lacks(optimizer)


def _kernel_of(optimizer: Any) -> Kernel | None:
    replaced = any(
        name in vars(optimizer)
        or getattr(type(optimizer), name) is not getattr(TFOptimizer, name)
        for name in _GONE_PAST
    )
    if replaced or "update_step" in vars(optimizer):
        return None
    return KERNELS.get(type(optimizer).update_step)


def fused_updates(optimizer: Any) -> contextlib.AbstractContextManager:
    """While the context is open, `optimizer` updates with its kernel.

    The scalars that all variables share ride in the place of the learning
    rate, which Keras hands on to each replica and variable.

    Args:
        optimizer: A Keras optimizer, also one wrapped for loss scaling.
            Without a kernel it is left as it is.
    """
    optimizer = innermost_optimizer(optimizer)
    kernel = _kernel_of(optimizer)
    if kernel is None or kernel.lacks(optimizer):
        return contextlib.nullcontext()
    keras_collective = optimizer._backend_update_step
    keras_update = optimizer.update_step

    def collective_update(
        gradients: list, variables: list, learning_rate: tf.Tensor
    ) -> None:
        scalars = kernel.scalars(optimizer, tf.convert_to_tensor(learning_rate))
        keras_collective(gradients, variables, scalars)

    def update(gradient: Any, variable: Any, scalars: Any) -> None:
        if isinstance(variable, keras.Variable):
            variable = variable.value
        index = optimizer._get_variable_index(variable)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if is_sparse or not _is_float32(kernel, optimizer, index, variable):
            keras_update(gradient, variable, scalars["learning_rate"])
            return
        kernel.update(
            optimizer,
            index,
            variable,
            tf.cast(gradient, variable.dtype),
            scalars,
        )

    return shadowed(
        optimizer, _backend_update_step=collective_update, update_step=update
    )


def _is_float32(
    kernel: Kernel, optimizer: Any, index: int, variable: tf.Variable
) -> bool:
    # A kernel given a slot of another dtype ends the process.
    slots = [getattr(optimizer, name, None) or [] for name in kernel.slots]
    held = [variable, *(slot[index] for slot in slots if len(slot))]
    return all(tf.as_dtype(each.dtype) == tf.float32 for each in held)
