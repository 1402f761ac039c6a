"""Head product, softmax, loss and gradient in chunks of tokens."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from keras_fastgrad._tensorflow import stop_recording
from keras_fastgrad.gradients.chunks import Chunks
from keras_fastgrad.gradients.compiled import Compiled
from keras_fastgrad.gradients.first_order import first_order_only
from keras_fastgrad.gradients.linear_head import LinearHead, logits_of

_OP = "linear_cross_entropy"
REDUCTIONS = (
    "sum_over_batch_size",
    "mean",
    "sum",
    "mean_with_sample_weight",
    None,
)


class _Kind(NamedTuple):
    """What is computed for each token; a key of the compiled functions."""

    label_smoothing: float
    soft_cap: float | None


# With z the logits of a token, after the cap c if there is one,
# z = c tanh(u / c), p = softmax(z), and the target t = (1 - a) onehot(label)
# + a / classes (Szegedy et al., Rethinking the Inception Architecture, 2016):
#   loss = log sum(exp z) - t . z,
#   dloss/dz = p - t,  dz/du = 1 - (z / c)^2.
# The losses of tokens add up with weights w, so with s = dloss/du of a chunk,
# its inputs x and the kernel W:
#   dx = w s W^T,  dW = (w x)^T s,  db = w^T s.
# The weights stand on the side that is narrow, and all gradients are known up
# to the one factor that comes from above (Dao et al. and Hsu et al. do so for
# GPUs; Liger Kernel, 2024).
def _losses_and_slopes(
    products: tf.Tensor,
    bias: tf.Tensor | None,
    labels: tf.Tensor,
    kind: _Kind,
) -> tuple[tf.Tensor, tf.Tensor]:
    logits = logits_of(products, bias, kind.soft_cap)
    classes = tf.shape(logits)[-1]
    top = tf.reduce_max(logits, -1, keepdims=True)
    powers = tf.exp(logits - top)
    total = tf.reduce_sum(powers, -1, keepdims=True)
    is_label = tf.range(classes)[None] == labels[:, None]
    hit = (1 - kind.label_smoothing) * tf.cast(is_label, logits.dtype)
    losses = (tf.math.log(total) + top)[:, 0]
    of_label = tf.gather(logits, labels, batch_dims=1)
    losses -= (1 - kind.label_smoothing) * of_label
    slopes = powers * (1 / total) - hit
    if kind.label_smoothing:
        losses -= kind.label_smoothing * tf.reduce_mean(logits, -1)
        slopes -= kind.label_smoothing / tf.cast(classes, logits.dtype)
    if kind.soft_cap:
        slopes *= 1 - tf.square(logits / kind.soft_cap)
    return losses, tf.cast(slopes, products.dtype)


@functools.cache
def _pass(kind: _Kind) -> Compiled:
    return Compiled(functools.partial(_losses_and_slopes, kind=kind))


class _Made(NamedTuple):
    """What a walk through the tokens makes.

    The gradients are those of the losses' weighted sum, over `unit`.
    """

    losses: tf.Tensor
    of_inputs: tf.Tensor
    of_kernel: tf.Tensor
    of_bias: tf.Tensor
    unit: tf.Tensor | float


def _losses(
    head: LinearHead,
    kind: _Kind,
    x: tf.Tensor,
    labels: tf.Tensor,
    chunks: Chunks,
) -> tf.Tensor:
    rows = head.rows()
    parts = chunks.cut(tf.cast(x, head.dtype), labels)

    def one(index: tf.Tensor) -> tuple[tf.Tensor]:
        part, targets = (each[index] for each in parts)
        made = _pass(kind)(tf.matmul(part, rows), head.bias, targets)
        return (made[0],)

    sums = head.kernel.dtype
    (losses,), _ = chunks.walk(lambda index, _: (one(index), ()), (), (sums,))
    return losses


def _gradients(
    head: LinearHead,
    kind: _Kind,
    x: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    chunks: Chunks,
) -> _Made:
    sums = head.kernel.dtype
    rows = head.rows()
    back = head.way_back(rows)
    # Half precision has no room for weights such as one over all tokens.
    unit: tf.Tensor | float = 1.0
    if head.dtype.size < 4:
        peak = tf.reduce_max(tf.abs(weights), keepdims=False)
        unit = tf.where(peak > 0, peak, tf.ones_like(peak))
        weights /= unit
    parts = chunks.cut(tf.cast(x, head.dtype), labels, weights)

    def one(index: tf.Tensor, so_far: tuple) -> tuple[tuple, tuple]:
        part, targets, scale = (each[index] for each in parts)
        losses, slopes = _pass(kind)(tf.matmul(part, rows), head.bias, targets)
        narrow = tf.cast(scale, head.dtype)[:, None]
        made = (
            tf.matmul(part * narrow, slopes, transpose_a=True),
            tf.matmul(narrow, slopes, transpose_a=True)[0],
        )
        of_inputs = tf.cast(back(slopes), sums) * scale[:, None]
        added = tuple(
            before + tf.cast(new, sums) for before, new in zip(so_far, made)
        )
        return (losses, of_inputs), added

    start = (tf.zeros(tf.shape(rows), sums), tf.zeros(tf.shape(rows)[1:], sums))
    start = tuple(
        tf.ensure_shape(each, shape)
        for each, shape in zip(start, (rows.shape, rows.shape[1:]))
    )
    (losses, of_inputs), (of_rows, of_bias) = chunks.walk(
        one, start, (sums, sums)
    )
    of_kernel = tf.transpose(of_rows) if head.is_transposed else of_rows
    return _Made(losses, of_inputs, of_kernel, of_bias, unit)


def _sum(
    head: LinearHead,
    kind: _Kind,
    x: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    chunks: Chunks,
) -> tf.Tensor:
    """The weighted sum of the losses, with the gradient made on the way."""
    sources = [x, weights, head.kernel]
    sources += [] if head.bias is None else [head.bias]

    @tf.custom_gradient
    def op(*sources: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        with stop_recording():
            made = _gradients(head, kind, x, labels, weights, chunks)
        losses = tf.stop_gradient(made.losses)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            with stop_recording():
                gradients = _scaled(made, upstream, x, weights)
            return first_order_only(
                _OP, gradients[: len(sources)], (*sources, upstream)
            )

        return tf.reduce_sum(losses * weights), gradient

    return op(*sources)


def _each(
    head: LinearHead,
    kind: _Kind,
    x: tf.Tensor,
    labels: tf.Tensor,
    chunks: Chunks,
) -> tf.Tensor:
    """The losses; the way back walks through the tokens once more."""
    sources = [x, head.kernel] + ([] if head.bias is None else [head.bias])

    @tf.custom_gradient
    def op(*sources: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        with stop_recording():
            losses = _losses(head, kind, x, labels, chunks)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            with stop_recording():
                made = _gradients(head, kind, x, labels, upstream, chunks)
                one = tf.ones((), upstream.dtype)
                of_x, _, *others = _scaled(made, one, x, upstream)
            return first_order_only(
                _OP, (of_x, *others)[: len(sources)], (*sources, upstream)
            )

        return tf.stop_gradient(losses), gradient

    return op(*sources)


def _scaled(
    made: _Made, upstream: tf.Tensor, x: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    factor = upstream * made.unit
    return (
        tf.cast(made.of_inputs * factor, x.dtype),
        made.losses * upstream,
        made.of_kernel * factor,
        made.of_bias * factor,
    )


def linear_cross_entropy(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    labels: tf.Tensor,
    bias: tf.Tensor | None = None,
    sample_weight: tf.Tensor | None = None,
    *,
    reduction: str | None = "sum_over_batch_size",
    ignore_class: int | None = None,
    label_smoothing: float = 0.0,
    soft_cap: float | None = None,
    is_transposed: bool = False,
    dtype: str | tf.DType | None = None,
    chunk_size: int | None = None,
) -> tf.Tensor:
    """The cross-entropy of a linear layer, without its matrix of logits.

    The loss of `softmax(inputs @ kernel + bias)`, worked out for some tokens
    at a time, so that the logits of all tokens never exist at once. With a
    `reduction` the gradient is made in the same walk; without one, the way
    back computes the logits again.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import linear_cross_entropy
    >>> tokens, kernel = tf.ones((2, 3)), tf.zeros((3, 4))
    >>> float(linear_cross_entropy(tokens, kernel, [0, 3]))  # log 4
    1.3862943649291992

    Args:
        inputs: Float tensor of shape `[..., features]`.
        kernel: Float tensor of shape `[features, classes]`.
        labels: Integer tensor of shape `[...]`, from 0 to `classes - 1`.
        bias: Tensor of shape `[classes]`. Defaults to none.
        sample_weight: Tensor that broadcasts to `[...]`. Defaults to ones.
        reduction: As in a Keras loss: `"sum_over_batch_size"` or `"mean"`,
            the sum over the number of tokens that are not ignored; `"sum"`;
            `"mean_with_sample_weight"`, the sum over that of the weights; or
            `None`, a loss for each token. Defaults to
            `"sum_over_batch_size"`.
        ignore_class: A label whose tokens do not count; it may lie outside
            of the classes. Defaults to none.
        label_smoothing: Share of the target that is spread over all classes.
            Defaults to 0.
        soft_cap: Bound c of the logits, which become `c tanh(logits / c)`
            (Gemma 2, 2024). Defaults to none.
        is_transposed: Whether `kernel` is `[classes, features]`, as an
            embedding's table is. Defaults to `False`.
        dtype: What products are computed in; sums and the softmax are in at
            least float32. Defaults to the dtype of `inputs`.
        chunk_size: Tokens at a time. Defaults to as many as the cache of the
            processor holds the logits of, and 128 or more.

    Returns:
        A float32 scalar (float64 for inputs of float64), or a tensor of shape
        `[...]` where `reduction` is `None`.

    Raises:
        ValueError: If shapes or options do not fit.
        tf.errors.InvalidArgumentError: If a label lies outside of the
            classes. Under XLA and on GPUs its loss is NaN instead.
    """
    inputs, labels = map(tf.convert_to_tensor, (inputs, labels))
    head = LinearHead.of(inputs, kernel, bias, is_transposed, dtype)
    _check(inputs, labels, reduction)
    kind = _Kind(float(label_smoothing), soft_cap)
    features, classes = head.sizes
    sums = head.kernel.dtype
    flat = tf.reshape(inputs, [-1, features])
    counts = tf.ones(tf.shape(labels), sums)
    if ignore_class is not None:
        counted = labels != tf.cast(ignore_class, labels.dtype)
        counts = tf.cast(counted, sums)
        labels = tf.where(counted, labels, tf.zeros_like(labels))
    weights = counts
    if sample_weight is not None:
        weights *= tf.cast(sample_weight, sums)
    targets, is_class = _checked(tf.reshape(labels, [-1]), classes)
    chunks = Chunks.of(flat, classes, chunk_size)
    if reduction is None:
        losses = tf.where(
            is_class,
            _each(head, kind, flat, targets, chunks),
            tf.constant(float("nan"), sums),
        )
        return tf.reshape(losses, tf.shape(labels)) * weights
    if reduction == "mean_with_sample_weight":
        weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
    elif reduction != "sum":
        weights = tf.math.divide_no_nan(weights, tf.reduce_sum(counts))
    weights = tf.where(
        is_class, tf.reshape(weights, [-1]), tf.constant(float("nan"), sums)
    )
    return _sum(head, kind, flat, targets, weights, chunks)


def _checked(labels: tf.Tensor, classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    is_class = (labels >= 0) & (labels < tf.cast(classes, labels.dtype))
    checks = tf.debugging.Assert(
        tf.reduce_all(is_class),
        [f"Labels must be from 0 to {classes - 1}. Received:", labels],
    )
    with tf.control_dependencies([checks] if checks is not None else []):
        targets = tf.where(is_class, labels, tf.zeros_like(labels))
    return tf.cast(targets, tf.int32), is_class


def _check(inputs: tf.Tensor, labels: tf.Tensor, reduction: str | None) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"`reduction` must be one of {REDUCTIONS}. "
            f"Received: reduction={reduction!r}."
        )
    if not labels.dtype.is_integer:
        raise ValueError(
            "Labels must be integers, since half precision and float32 round "
            f"large ones. Received: labels of dtype {labels.dtype.name}."
        )
    if not labels.shape.is_compatible_with(inputs.shape[:-1]):
        raise ValueError(
            "Shapes must be [..., features] of inputs and [...] of labels. "
            f"Received: {inputs.shape} and {labels.shape}."
        )
