"""Several tasks over a shared trunk, whose gradients meet at its output."""

import functools
from collections.abc import Callable

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording
from keras_fastgrad.gradients.compiled import wide
from keras_fastgrad.gradients.first_order import first_order_only
from keras_fastgrad.gradients.task_weights import (
    WEIGHTINGS,
    mgda_weights,
    pcgrad_weights,
)


def multitask(
    shared: tf.Tensor,
    tasks: int,
    weighting: str = "sum",
    *,
    seed: tf.Tensor | None = None,
) -> list[tf.Tensor]:
    """A shared representation, handed to several tasks.

    Each task reads a tensor of its own. On the way back their gradients meet
    here, are weighed, and go through the trunk as one, where weighing the
    gradients of its variables takes a backward pass for each task. The
    gradient of a trunk is linear in that of its output, so for given weights
    the two are the same. What lies behind, a task's head, has the gradient
    of its own loss.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import multitask
    >>> shared = tf.constant([[1.0, 0.0]])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(shared)
    ...     one, two = multitask(shared, 2, "pcgrad")
    ...     loss = one[0, 0] + (one[0, 1] - two[0, 0])
    >>> tape.gradient(loss, shared).numpy()  # parts (1, 1) and (-1, 0)
    array([[-0.5,  1.5]], dtype=float32)

    Args:
        shared: Float tensor of any shape, what all tasks read.
        tasks: How many there are.
        weighting: What the trunk gets of the gradients g_k of the tasks with
            respect to `shared`, taken over the whole batch:
            `"sum"`, their sum, as without this function;
            `"pcgrad"`, their sum after the part of each is taken off that
            works against another (Yu et al., Gradient Surgery for Multi-Task
            Learning, 2020, Algorithm 1, on the representation instead of the
            weights);
            `"mgda"`, the shortest of their convex combinations (Sener and
            Koltun, Multi-Task Learning as Multi-Objective Optimization, 2018,
            section 3.3, the bound MGDA-UB).
            Defaults to `"sum"`.
        seed: Integer tensor of shape `[2]` that draws the order in which
            `"pcgrad"` goes through the other tasks. Defaults to the order of
            the tasks.

    Returns:
        As many tensors like `shared` as there are tasks. Weights are computed
        in at least float32; gradients of half precision stay so.

    Raises:
        ValueError: If an argument is out of its range.
    """
    shared = tf.convert_to_tensor(shared)
    check_tasks(tasks, weighting, seed is not None)
    if weighting == "sum":
        return [tf.identity(shared) for _ in range(tasks)]
    weigh = mgda_weights
    if weighting == "pcgrad":
        weigh = functools.partial(pcgrad_weights, seed=seed)
    return _handed_out(shared, tasks, weigh)


def check_tasks(tasks: int, weighting: str, has_seed: bool) -> None:
    """Raises a `ValueError` where `multitask` cannot do what is asked."""
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise ValueError(
            f"`tasks` must be an integer from 1 on. Received: {tasks!r}."
        )
    if weighting not in WEIGHTINGS:
        raise ValueError(
            f"`weighting` must be one of {WEIGHTINGS}. Received: {weighting!r}."
        )
    if has_seed and weighting != "pcgrad":
        raise ValueError(
            "`seed` is for weighting='pcgrad', which alone depends on an "
            f"order. Received: weighting={weighting!r}."
        )


def _handed_out(
    shared: tf.Tensor, tasks: int, weigh: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    @tf.custom_gradient
    def op(shared: tf.Tensor) -> tuple[list[tf.Tensor], Callable]:
        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            with stop_recording():
                rows = tf.reshape(tf.stack(upstream), [tasks, -1])
                (broad,) = wide(rows)
                weights = weigh(tf.matmul(broad, broad, transpose_b=True))
                weighed = tf.matmul(weights[None], broad)
                whole = tf.cast(
                    tf.reshape(weighed, tf.shape(shared)), shared.dtype
                )
            return first_order_only(
                "multitask", [tf.ensure_shape(whole, shared.shape)], upstream
            )

        return [tf.identity(shared) for _ in range(tasks)], gradient

    return list(op(shared))
