"""Puts the chunked cross-entropy in the place of a model's last layer.

While a step is traced, the last `Dense` hands its inputs on, and the loss,
which knows the targets and their weights, does its product.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import (
    has_metrics,
    is_users_own,
    loss_of,
    loss_replaced,
    output_chain,
    set_keras_mask,
    shadowed,
)
from keras_fastgrad.gradients.linear_cross_entropy import linear_cross_entropy
from keras_fastgrad.gradients.rewrite import Match

_Loss = keras.losses.SparseCategoricalCrossentropy
# Logits of a sample below which nothing is gained.
_SMALL = 1024


class Head:
    """Finds Dense -> SparseCategoricalCrossentropy at the end of a model.

    Args:
        precision: That of the strategy. Under `"mixed_bfloat16"` the head's
            products are in bfloat16, also those of a Dense that is kept in
            float32: the sums, the softmax and the loss still are.
    """

    op = "linear_cross_entropy"

    def __init__(self, precision: str | None = None) -> None:
        self._precision = precision

    def matches(self, model: keras.Model) -> Iterator[Match]:
        """The one match, where the model ends in such a head."""
        dense, after = _at_end(model)
        loss = _resolved(loss_of(model))
        if dense is None or loss is None:
            return
        reason = _refusal(model, dense, after, loss)

        def enter() -> contextlib.AbstractContextManager:
            return self._entered(model, dense, after)

        yield Match(dense, self.op, enter, reason)

    @contextlib.contextmanager
    def _entered(
        self, model: keras.Model, dense: Any, after: list[Any]
    ) -> Iterator[None]:
        def replace(loss: Any) -> Callable:
            return _chunked(loss, dense, self._products(dense))

        with contextlib.ExitStack() as stack:
            for layer in (dense, *after):
                stack.enter_context(shadowed(layer, call=_hand_on))
            stack.enter_context(loss_replaced(model, replace))
            yield

    def _products(self, dense: Any) -> str:
        if self._precision == "mixed_bfloat16":
            return "bfloat16"
        return dense.compute_dtype


def _hand_on(inputs: Any, training: Any = None) -> tf.Tensor:
    return tf.identity(inputs)


def _chunked(loss: Any, dense: Any, products: str) -> Callable:
    """What takes the place of `loss` on the inputs of `dense`."""
    ignored = getattr(loss, "_fn_kwargs", {}).get("ignore_class")

    def call(
        y_true: Any, features: tf.Tensor, sample_weight: Any = None
    ) -> tf.Tensor:
        labels = tf.convert_to_tensor(y_true)
        if labels.shape.rank == features.shape.rank:
            labels = tf.squeeze(labels, -1)
        if not labels.dtype.is_integer:
            labels = tf.cast(labels, tf.int64)
        # Keras's own weighting, of masks too, is linear in the losses.
        losses = tf.zeros(tf.shape(labels), loss.dtype)
        with tf.GradientTape() as tape:
            tape.watch(losses)
            own = tf.identity(losses)
            if ignored is not None:
                set_keras_mask(own, labels != ignored)
            with shadowed(loss, call=lambda y_true, y_pred: own):
                total = loss(y_true, features, sample_weight)
        weights = tape.gradient(total, losses)
        return linear_cross_entropy(
            features,
            tf.convert_to_tensor(dense.kernel),
            labels,
            None if dense.bias is None else tf.convert_to_tensor(dense.bias),
            weights,
            reduction="sum",
            ignore_class=ignored,
            dtype=products,
        )

    return call


def _at_end(model: keras.Model) -> tuple[Any, list[Any]]:
    """The last Dense, or `None`, and the layer of its softmax if it has one."""
    chain = output_chain(model)
    after = chain[:1] if chain and _is_softmax(chain[0]) else []
    dense: Any = chain[len(after)] if len(chain) > len(after) else None
    activations = keras.activations.linear, keras.activations.softmax
    if type(dense) is not keras.layers.Dense or (
        dense.activation not in activations[: 1 if after else 2]
    ):
        return None, []
    return dense, after


def _is_softmax(layer: Any) -> bool:
    return (
        type(layer) is keras.layers.Activation
        and layer.activation is keras.activations.softmax
    )


def _resolved(loss: Any) -> Any:
    """The loss as a Keras object, or `None` where it is another one."""
    if type(loss) is _Loss:
        return loss
    if loss is keras.losses.sparse_categorical_crossentropy or (
        loss
        in ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy")
    ):
        return _Loss()
    return None


def _refusal(model: Any, dense: Any, after: list[Any], loss: Any) -> str | None:
    for name in ("train_step", "compute_loss", "compute_metrics", "call"):
        if is_users_own(model, name):
            return f"the model has a `{name}` of its own"
    if has_metrics(model):
        return "metrics need its logits"
    if dense.activity_regularizer is not None:
        return "it has an activity regularizer"
    if dense.quantization_mode is not None:
        return "it is quantized"
    if math.prod(size or 1 for size in model.output_shape[1:]) < _SMALL:
        return f"it has less than {_SMALL:,} logits a sample"
    if loss.reduction in (None, "none"):
        return "the loss is not reduced to one number"
    gives_logits = not after and dense.activation is keras.activations.linear
    if loss.get_config()["from_logits"] != gives_logits:
        return "`from_logits` of the loss is not what it gives"
    return None
