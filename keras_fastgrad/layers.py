"""Thin Keras layers over the ops."""

from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import set_keras_mask
from keras_fastgrad.gradients.linear_cross_entropy import (
    linear_cross_entropy,
)
from keras_fastgrad.gradients.linear_head import LinearHead, logits_of
from keras_fastgrad.gradients.linear_top_k import TopK, linear_top_k
from keras_fastgrad.gradients.multitask import check_tasks, multitask

__all__ = ["LinearCrossEntropy", "Multitask"]


@keras.saving.register_keras_serializable("keras_fastgrad")
class LinearCrossEntropy(keras.layers.Layer):
    """A Dense layer over many classes, with its softmax and its loss.

    Given labels, it adds the cross-entropy to the losses of the model,
    without the matrix of logits of `gradients.linear_cross_entropy`, and
    returns it. Without labels it returns the logits, and `top_k` the likeliest
    classes alone.

    Example:
    >>> import keras
    >>> import numpy as np
    >>> import keras_fastgrad as fg
    >>> tokens = keras.Input((8,), dtype="int32")
    >>> following = keras.Input((8,), dtype="int32")
    >>> hidden = keras.layers.Embedding(50, 4)(tokens)
    >>> head = fg.layers.LinearCrossEntropy(50)
    >>> model = fg.FastGradModel([tokens, following], head(hidden, following))
    >>> model.compile("adam")
    >>> x = np.ones((2, 8), "int32")
    >>> history = model.fit([x, x], verbose=0)
    >>> head.top_k(np.ones((2, 4), "float32"), k=3).classes.shape
    TensorShape([2, 3])
    >>> keras.Model(tokens, head(hidden)).predict(x, verbose=0).shape
    (2, 8, 50)

    Args:
        classes: Number of classes.
        use_bias: Whether each class has a bias. Defaults to `True`.
        tied_to: A `keras.layers.Embedding` over the classes, built before this
            layer, whose table is then the kernel. Defaults to none: a kernel
            of its own.
        reduction: As of `gradients.linear_cross_entropy`, one that gives a
            number. Defaults to `"sum_over_batch_size"`.
        ignore_class: A label whose tokens do not count. Defaults to none.
        label_smoothing: Share of the target that is spread over all classes.
            Defaults to 0.
        soft_cap: Bound c of the logits, which become `c tanh(logits / c)`.
            Defaults to none.
        chunk_size: Tokens at a time. Defaults to what the cache holds.
        kernel_initializer, bias_initializer: As of `keras.layers.Dense`.
        kernel_regularizer, bias_regularizer: As of `keras.layers.Dense`.
        kernel_constraint, bias_constraint: As of `keras.layers.Dense`.
        **kwargs: As of `keras.layers.Layer`. Products are in its compute
            dtype, sums and the softmax in at least float32.

    Call arguments:
        inputs: Float tensor of shape `[batch, ..., features]`.
        labels: Integer tensor of shape `[batch, ...]`, or `None`.
        sample_weight: Tensor that broadcasts to it. Defaults to ones.
        mask: Booleans of the same shape; a token that is masked does not
            count. Defaults to the mask of `inputs`.
        inputs_mask: Where Keras puts the mask of `inputs`.

    Raises:
        ValueError: If an argument does not fit.
    """

    def __init__(
        self,
        classes: int,
        *,
        use_bias: bool = True,
        tied_to: keras.layers.Embedding | None = None,
        reduction: str = "sum_over_batch_size",
        ignore_class: int | None = None,
        label_smoothing: float = 0.0,
        soft_cap: float | None = None,
        chunk_size: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        # Labels and weights are not to be rounded; the op casts for itself.
        super().__init__(autocast=False, **kwargs)
        if reduction in (None, "none"):
            raise ValueError(
                "`reduction` must give a number, which the loss of a model "
                "is. Received: reduction=None. Take "
                "`gradients.linear_cross_entropy` for a loss of each token."
            )
        if tied_to is not None and tied_to.input_dim != classes:
            raise ValueError(
                "`tied_to` must have a row for each class. Received: "
                f"classes={classes}, input_dim={tied_to.input_dim}."
            )
        self.classes = classes
        self.use_bias = use_bias
        self.tied_to = tied_to
        self._loss_options: dict[str, Any] = {
            "reduction": reduction,
            "ignore_class": ignore_class,
            "label_smoothing": label_smoothing,
        }
        self._options: dict[str, Any] = {
            "soft_cap": soft_cap,
            "chunk_size": chunk_size,
        }
        self._of_kernel = _of_weight(
            kernel_initializer, kernel_regularizer, kernel_constraint
        )
        self._of_bias = _of_weight(
            bias_initializer, bias_regularizer, bias_constraint
        )
        self.supports_masking = True

    def build(
        self,
        inputs_shape: Any,
        labels_shape: Any = None,
        sample_weight_shape: Any = None,
    ) -> None:
        """Makes the weights; labels and their weights have no say in it."""
        if self.tied_to is not None and not self.tied_to.built:
            raise ValueError(
                "`tied_to` must be a built Embedding. Received one without "
                "its table. Call it on the tokens first, or its `build()`."
            )
        if self.tied_to is None:
            shape = (inputs_shape[-1], self.classes)
            self._own = self.add_weight(
                name="kernel", shape=shape, autocast=False, **self._of_kernel
            )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.classes,),
                autocast=False,
                **self._of_bias,
            )
        self.built = True

    @property
    def kernel(self) -> keras.Variable:
        """The kernel, turned where it is an embedding's table."""
        if self.tied_to is None:
            return self._own
        return self.tied_to.embeddings

    def call(
        self,
        inputs: Any,
        labels: Any = None,
        sample_weight: Any = None,
        mask: Any = None,
        inputs_mask: Any = None,
    ) -> Any:
        """The loss of `labels`, or the logits where there are none."""
        # Keras names it so where a layer is called on several tensors.
        mask = inputs_mask if mask is None else mask
        if labels is None:
            logits = self._logits(inputs)
            if mask is not None:
                set_keras_mask(logits, mask)
            return logits
        labels = tf.convert_to_tensor(labels)
        loss_options = dict(self._loss_options)
        if mask is not None:
            labels = tf.cast(labels, tf.int64)
            if loss_options["ignore_class"] is None:
                loss_options["ignore_class"] = -1
            nothing = tf.constant(loss_options["ignore_class"], tf.int64)
            labels = tf.where(mask, labels, nothing)
        loss = linear_cross_entropy(
            labels=labels,
            sample_weight=sample_weight,
            **self._head(inputs),
            **self._options,
            **loss_options,
        )
        self.add_loss(loss)
        return loss

    def top_k(self, inputs: Any, k: int = 1) -> TopK:
        """The `k` likeliest classes, as `gradients.linear_top_k`.

        Args:
            inputs: Float tensor of shape `[..., features]`.
            k: How many. Defaults to 1.
        """
        return linear_top_k(k=k, **self._head(inputs), **self._options)

    def compute_output_spec(
        self,
        inputs: Any,
        labels: Any = None,
        sample_weight: Any = None,
        mask: Any = None,
        inputs_mask: Any = None,
    ) -> keras.KerasTensor:
        """Shape and dtype of what a call returns."""
        wide = "float64" if self.compute_dtype == "float64" else "float32"
        if labels is not None:
            return keras.KerasTensor((), wide)
        return keras.KerasTensor((*inputs.shape[:-1], self.classes), wide)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Nothing: a loss has no mask, and logits got theirs in the call."""

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        config = super().get_config()
        weights = {"kernel": self._of_kernel, "bias": self._of_bias}
        for name, options in weights.items():
            for kind, value in options.items():
                written = keras.saving.serialize_keras_object(value)
                config[f"{name}_{kind}"] = written
        return {
            **config,
            "classes": self.classes,
            "use_bias": self.use_bias,
            "tied_to": keras.saving.serialize_keras_object(self.tied_to),
            **self._loss_options,
            **self._options,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LinearCrossEntropy":
        """A layer with these arguments."""
        config = dict(config)
        tied_to = config.pop("tied_to", None)
        if tied_to is not None:
            tied_to = keras.saving.deserialize_keras_object(tied_to)
        return cls(tied_to=tied_to, **config)

    def _head(self, inputs: Any) -> dict[str, Any]:
        if not self.built:
            self.build(inputs.shape)
        return {
            "inputs": tf.convert_to_tensor(inputs),
            "kernel": tf.convert_to_tensor(self.kernel),
            "bias": None
            if self.bias is None
            else tf.convert_to_tensor(self.bias),
            "is_transposed": self.tied_to is not None,
            "dtype": self.compute_dtype,
        }

    def _logits(self, inputs: Any) -> tf.Tensor:
        head = LinearHead.of(**self._head(inputs))
        features, classes = head.sizes
        flat = tf.reshape(tf.cast(inputs, head.dtype), [-1, features])
        products = tf.matmul(flat, head.rows())
        logits = logits_of(products, head.bias, self._options["soft_cap"])
        shape = tf.concat([tf.shape(inputs)[:-1], [classes]], 0)
        return tf.ensure_shape(
            tf.reshape(logits, shape), [*inputs.shape[:-1], classes]
        )


def _of_weight(
    initializer: Any, regularizer: Any, constraint: Any
) -> dict[str, Any]:
    return {
        "initializer": keras.initializers.get(initializer),
        "regularizer": keras.regularizers.get(regularizer),
        "constraint": keras.constraints.get(constraint),
    }


@keras.saving.register_keras_serializable("keras_fastgrad")
class Multitask(keras.layers.Layer):
    """Hands a shared representation to several tasks.

    On the way back the gradients of the tasks meet here and go through what
    lies before as one; see `gradients.multitask`.

    Example:
    >>> import keras
    >>> import keras_fastgrad as fg
    >>> inputs = keras.Input((8,))
    >>> hidden = keras.layers.Dense(16, activation="relu")(inputs)
    >>> one, two = fg.layers.Multitask(2, "pcgrad")(hidden)
    >>> heads = [keras.layers.Dense(3)(one), keras.layers.Dense(1)(two)]
    >>> model = fg.FastGradModel(inputs, heads)
    >>> model.compile("adam", ["mse", "mse"])

    Args:
        tasks: How many tasks there are.
        weighting: `"sum"`, `"pcgrad"` or `"mgda"`. Defaults to `"sum"`.
        **kwargs: As of `keras.layers.Layer`.

    Call arguments:
        inputs: Float tensor of any shape.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self, tasks: int, weighting: str = "sum", **kwargs: Any
    ) -> None:
        check_tasks(tasks, weighting, has_seed=False)
        super().__init__(**kwargs)
        self.tasks = tasks
        self.weighting = weighting
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Any) -> list[tf.Tensor]:
        """A tensor like `inputs` for each task."""
        return multitask(inputs, self.tasks, self.weighting)

    def compute_output_spec(self, inputs: Any) -> list[keras.KerasTensor]:
        """Shape and dtype of what a call returns."""
        return [
            keras.KerasTensor(inputs.shape, inputs.dtype)
            for _ in range(self.tasks)
        ]

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> list[Any]:
        """The mask of `inputs`, for each task."""
        return [previous_mask] * self.tasks

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {
            **super().get_config(),
            "tasks": self.tasks,
            "weighting": self.weighting,
        }
