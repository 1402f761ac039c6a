"""Sparse gradients reach the optimizer with right sums.

The gradient of an Embedding names a row once for each time that a batch
does. Keras squares and clips these parts before they are summed. Here the
parts of a row are summed first, so that every optimizer makes the update of
the dense gradient.
"""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import shadowed

# Without momentum, a row whose gradient is zero does not move in these, and
# its slot keeps its value: updating the rows of the batch alone is exact.
_EXACT_BY_ROW = (
    keras.optimizers.SGD.update_step,
    keras.optimizers.Adagrad.update_step,
)


def summed_gradients(
    optimizer: Any, jit_compile: bool
) -> contextlib.AbstractContextManager:
    """While the context is open, `apply` sees each row's gradient summed.

    Optimizers that are exact row by row get `IndexedSlices` in which no id
    repeats, all others a dense gradient.

    Args:
        optimizer: The model's optimizer, or `None`.
        jit_compile: Whether the step is compiled by XLA, which lacks
            `tf.unique`: all gradients become dense there.
    """
    if optimizer is None:
        return contextlib.nullcontext()
    keras_apply = optimizer.apply

    def summed(gradient: Any, keeps_rows: bool) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if keeps_rows:
            return with_unique_rows(gradient)
        return tf.convert_to_tensor(gradient)

    def apply(grads: Any, trainable_variables: Any = None) -> None:
        # Asked here, where the replicas can be seen.
        keeps_rows = not jit_compile and _is_exact_by_row(optimizer)
        keras_apply(
            [summed(each, keeps_rows) for each in grads], trainable_variables
        )

    return shadowed(optimizer, apply=apply)


def with_unique_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same gradient with the parts of each row summed.

    Args:
        gradient: Values of shape `[parts, ...]` for the rows `indices`, of
            shape `[parts]`, in which a row may stand more than once.

    Returns:
        Slices with values of shape `[rows, ...]`, each row once.
    """
    rows, position = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(
        gradient.values, position, tf.size(rows)
    )
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _is_exact_by_row(optimizer: Any) -> bool:
    # Replicas join their slices after this, which lets ids repeat again.
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        return False
    return (
        type(optimizer).update_step in _EXACT_BY_ROW
        and getattr(optimizer, "momentum", 0) == 0
        and optimizer.loss_scale_factor is None
        and not optimizer.gradient_accumulation_steps
    )
