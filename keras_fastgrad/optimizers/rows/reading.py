"""What a step has read of a table, and the gradient for it."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_fastgrad.optimizers.rows.rule import Rows
from keras_fastgrad.optimizers.rows.tensors import with_few_lengths


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


def reads_of(indices: tf.Tensor, reads: Sequence[Read]) -> list[Read] | None:
    """The reads whose rows a gradient's `indices` are, in their order.

    A table that is looked up several times has a gradient made of those of
    all lookups, one behind the other.

    Args:
        indices: Row numbers of a gradient.
        reads: What the step has read.

    Returns:
        The reads, or `None` where a part of the gradient has another origin:
        it was made by hand, say, or in a function of the user's, whose
        tensors cannot be used here.
    """
    graph = tf.compat.v1.get_default_graph()
    own = {id(read.rows): read for read in reads if read.graph is graph}
    parts = [indices]
    if id(indices) not in own and indices.op.type == "ConcatV2":
        parts = list(indices.op.inputs)[:-1]
    used = [own.get(id(part)) for part in parts]
    return None if None in used else [read for read in used if read]


def joined(reads: Sequence[Read], gradient: tf.IndexedSlices) -> RowGradient:
    """One gradient for the rows of several reads, with what was found.

    Args:
        reads: From `reads_of`.
        gradient: Their gradient, in which a row may stand once for each read.
    """
    rows, position = tf.unique(gradient.indices)
    padded = with_few_lengths(rows)
    values = tf.math.unsorted_segment_sum(
        gradient.values, position, tf.size(padded)
    )
    # Any place will do where a row was read: it was found alike.
    offsets = tf.cumsum(
        [tf.size(read.padded) for read in reads], exclusive=True
    )
    places = tf.concat(
        [
            tf.range(tf.size(read.rows)) + offsets[index]
            for index, read in enumerate(reads)
        ],
        0,
    )
    place = tf.math.unsorted_segment_max(places, position, tf.size(rows))
    place = tf.pad(place, [[0, tf.size(padded) - tf.size(rows)]])

    def found(of_reads: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.gather(tf.concat(of_reads, 0), place)

    slots = zip(*(read.found.slots for read in reads))
    weights = found([read.found.weights for read in reads])
    return RowGradient(
        rows, padded, values, Rows(weights, tuple(map(found, slots)))
    )
