"""Chains of elementwise operations as one pass, compiled by XLA."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording, xla_works

# Elements below which a call into compiled code costs more than it saves.
_SMALL = 1 << 14


class Compiled:
    """A function of tensors that XLA compiles, with a derivative.

    The derivative is the automatic one of the function as it is written.
    The function is not compiled where nothing is gained: where XLA does not
    work, where the first tensor is small, and where more of its sizes than
    the first are unknown, since XLA compiles anew for each size.

    Args:
        function: Of tensors and Python values, returns tensors. The first
            argument is a tensor as large as any.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns."""
        if not _pays(arguments[0]):
            return self._function(*arguments)
        tensors = [each for each in arguments if tf.is_tensor(each)]

        def filled(values: Any) -> list[Any]:
            following = iter(values)
            return [
                next(following) if tf.is_tensor(each) else each
                for each in arguments
            ]

        @tf.custom_gradient
        def differentiable(*tensors: tf.Tensor) -> tuple[Any, Callable]:
            with stop_recording():
                made = self._by_xla(*filled(tensors))

            def gradient(*upstream: tf.Tensor) -> Any:
                with tf.GradientTape() as tape:
                    tape.watch(tensors)
                    plain = self._function(*filled(tensors))
                return tape.gradient(
                    tf.nest.flatten(plain), tensors, list(upstream)
                )

            return tf.nest.map_structure(tf.stop_gradient, made), gradient

        return differentiable(*tensors)

    @functools.cached_property
    def _by_xla(self) -> Callable[..., Any]:
        return tf.function(self._function, jit_compile=True, autograph=False)


def _pays(first: tf.Tensor) -> bool:
    if not xla_works():
        return False
    shape = first.shape
    if shape.rank is None or None in shape[1:]:
        return False
    size = shape.num_elements()
    return size is None or size >= _SMALL


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype of sums: float64 for itself, float32 for all others."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def wide(*tensors: Any) -> list[Any]:
    """The tensors in at least float32; what is not a tensor as it is."""
    return [
        tf.cast(each, tf.float32)
        if tf.is_tensor(each) and each.dtype in (tf.float16, tf.bfloat16)
        else each
        for each in tensors
    ]
