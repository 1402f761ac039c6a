"""Gradients that have no derivative of their own, and say so."""

from collections.abc import Callable, Sequence

import tensorflow as tf


def first_order_only(
    op: str, gradients: Sequence[tf.Tensor], sources: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, ...]:
    """The gradients, which raise an error where they are differentiated.

    Args:
        op: Whose gradients they are.
        gradients: Tensors that were worked out where no tape sees it.
        sources: The tensors that they depend on.
    """

    @tf.custom_gradient
    def guarded(*tensors: tf.Tensor) -> tuple[tuple, Callable]:
        return tensors[: len(gradients)], refuse

    def refuse(*upstream: tf.Tensor) -> None:
        raise NotImplementedError(
            f"The gradient of `{op}` has no derivative of its own. Received: "
            "a second derivative through it. Compile with "
            "fastgrad=Strategy(gradients='keras') to take Keras's gradient."
        )

    return guarded(*gradients, *sources)
