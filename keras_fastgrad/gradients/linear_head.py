"""A linear layer over many classes, whose logits are made in parts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_fastgrad.gradients.compiled import wide


class LinearHead(NamedTuple):
    """The tensors of a head, each in the dtype of its sums.

    Args:
        kernel: Of shape `[features, classes]`, or turned.
        bias: Of shape `[classes]`, or `None`.
        is_transposed: Whether the kernel is turned.
        dtype: That of products.
    """

    kernel: tf.Tensor
    bias: tf.Tensor | None
    is_transposed: bool
    dtype: tf.DType

    @classmethod
    def of(
        cls,
        inputs: tf.Tensor,
        kernel: Any,
        bias: Any,
        is_transposed: bool,
        dtype: Any,
    ) -> "LinearHead":
        """The head over `inputs`, of shape `[..., features]`.

        Raises:
            ValueError: If the shapes do not fit.
        """
        (kernel,) = wide(tf.convert_to_tensor(kernel))
        shape = kernel.shape
        if (
            shape.rank != 2
            or None in shape
            or inputs.shape[-1] != shape[1 if is_transposed else 0]
        ):
            raise ValueError(
                "Shapes must be [..., features] of inputs and [features, "
                "classes] of the kernel (turned where is_transposed=True). "
                f"Received: {inputs.shape} and {shape}."
            )
        if bias is not None:
            bias = tf.cast(tf.convert_to_tensor(bias), kernel.dtype)
        return cls(
            kernel, bias, is_transposed, tf.as_dtype(dtype or inputs.dtype)
        )

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of features and of classes."""
        first, second = self.kernel.shape
        return (second, first) if self.is_transposed else (first, second)

    def rows(self) -> tf.Tensor:
        """The kernel as `[features, classes]`, in the dtype of products."""
        kernel = tf.cast(self.kernel, self.dtype)
        return tf.transpose(kernel) if self.is_transposed else kernel

    def way_back(self, rows: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        """Products with the kernel's transpose.

        oneDNN takes twice as long for a second factor of float32 that it has
        to transpose, and as long for one of bfloat16.
        """
        if self.is_transposed:
            turned = tf.cast(self.kernel, self.dtype)
        elif self.dtype.size >= 4:
            turned = tf.transpose(rows)
        else:
            return lambda slopes: tf.matmul(slopes, rows, transpose_b=True)
        return lambda slopes: tf.matmul(slopes, turned)


def logits_of(
    products: tf.Tensor, bias: tf.Tensor | None, soft_cap: float | None
) -> tf.Tensor:
    """The logits, in at least float32, from inputs times kernel."""
    (logits,) = wide(products)
    if bias is not None:
        logits += bias
    return soft_cap * tf.tanh(logits / soft_cap) if soft_cap else logits
