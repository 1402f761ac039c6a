"""One training step, as a line of small functions.

    forward -> loss -> scale -> backward -> update -> metrics

Unscaling, accumulation, clipping and the finite check are the optimizer's,
inside `update`, so that a model with a `train_step` of its own has them too.
"""

import warnings
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_fastgrad._keras import unscale_loss_for_distribution


class Batch(NamedTuple):
    """Inputs, targets and weights of one step, each a tensor structure."""

    x: Any
    y: Any
    sample_weight: Any


def train(model: keras.Model, data: Any) -> dict[str, Any]:
    """Trains `model` on one batch.

    Args:
        model: A compiled model.
        data: What the dataset yields: `x`, `(x, y)` or
            `(x, y, sample_weight)`.

    Returns:
        The metrics so far, as `train_step` returns them.
    """
    batch = Batch(*keras.utils.unpack_x_y_sample_weight(data))
    with tf.GradientTape() as tape:
        y_pred = forward(model, batch)
        loss = compute_loss(model, batch, y_pred)
        scaled_loss = scale(model, loss)
    update(model, tape, scaled_loss)
    return model.compute_metrics(
        batch.x, batch.y, y_pred, sample_weight=batch.sample_weight
    )


def forward(model: keras.Model, batch: Batch) -> Any:
    """The predictions in training mode, with dropout and batch statistics."""
    if model._call_has_training_arg:
        return model(batch.x, training=True)
    return model(batch.x)


def compute_loss(model: keras.Model, batch: Batch, y_pred: Any) -> tf.Tensor:
    """The total loss, noted in the loss metric with the batch's size."""
    loss = model._compute_loss(
        x=batch.x,
        y=batch.y,
        y_pred=y_pred,
        sample_weight=batch.sample_weight,
        training=True,
    )
    first = next(x for x in keras.tree.flatten(batch.x) if x is not None)
    model._loss_tracker.update_state(
        unscale_loss_for_distribution(loss), sample_weight=tf.shape(first)[0]
    )
    return loss


def scale(model: keras.Model, loss: tf.Tensor) -> tf.Tensor:
    """The loss times the optimizer's loss scale, where it has one."""
    if model.optimizer is None:
        return loss
    return model.optimizer.scale_loss(loss)


def update(model: keras.Model, tape: tf.GradientTape, loss: tf.Tensor) -> None:
    """Goes backwards through `tape` and applies the gradients."""
    weights = model.trainable_weights
    if not weights:
        warnings.warn(
            "The model does not have any trainable weights.", stacklevel=2
        )
        return
    gradients = tape.gradient(loss, weights)
    model.optimizer.apply_gradients(zip(gradients, weights))
