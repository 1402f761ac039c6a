"""What a step has read of a table, and the gradient for it."""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from keras_fastgrad.optimizers.rows.rule import Rows


class RowGradient(NamedTuple):
    """A gradient for some rows, as an update takes it.

    Args:
        rows: Row numbers, each once, of shape `[rows]`.
        padded: The same, filled up with row 0 to a length of which there are
            few, so that what is compiled for a length is used again.
        values: The gradient of shape `[padded, width]`, zero where filled up.
        found: What the step has read at `padded`, or `None`.
    """

    rows: tf.Tensor
    padded: tf.Tensor
    values: tf.Tensor
    found: Rows | None


@dataclasses.dataclass
class Read:
    """Rows that the step has read.

    Args:
        rows: Row numbers, each once.
        padded: The same, filled up.
        found: The rows at `padded`.
        graph: The graph they were read in.
        values: Their gradient, once it was asked for.
        padded_values: The same, filled up.
    """

    rows: tf.Tensor
    padded: tf.Tensor
    found: Rows
    graph: Any
    values: tf.Tensor | None = None
    padded_values: tf.Tensor | None = None
