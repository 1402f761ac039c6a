"""Small things that rows of a table need of TensorFlow."""

from collections.abc import Callable

import tensorflow as tf

from keras_fastgrad._tensorflow import xla_works
from keras_fastgrad.lengths import rounded_up

_LEAST_BITS = 6


def compiled(function: Callable) -> Callable:
    """One pass over the rows instead of one for each operation."""
    if not xla_works():
        return function
    return tf.function(function, jit_compile=True, autograph=False)


def with_few_lengths(rows: tf.Tensor) -> tf.Tensor:
    """`rows` filled up with row 0 to one of few lengths."""
    return filled(rows, rounded_up(tf.size(rows), _LEAST_BITS))


def filled(values: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """`values` filled up with zeros to `length` along the first axis."""
    beyond = [[0, length - tf.shape(values)[0]]]
    flat = [[0, 0]] * (values.shape.rank - 1)
    return tf.pad(values, beyond + flat)


def traced(function: Callable[[], None]) -> Callable[[], None]:
    """A graph, traced on the spot.

    A `tf.function` for each table would look to TensorFlow like one that is
    traced too often.
    """
    return tf.function(function, autograph=False).get_concrete_function()


def gather(variable: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    """The rows of a variable, without reading the rest of it."""
    return tf.raw_ops.ResourceGather(
        resource=variable.handle, indices=rows, dtype=variable.dtype
    )


def scatter(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor) -> None:
    """Writes the rows of a variable, each of which stands there once."""
    tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=rows, updates=values
    )


def nothing() -> None:
    """The branch in which nothing is to do."""
