"""Rows in chunks whose products fit into the cache of the processor."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Where the system does not say.
_USUAL_CACHE = 16 << 20
# Rows below which a matrix product runs below its speed.
_FEWEST = 128

# Of the chunk's index and sums; returns what is kept of it and the sums.
Step = Callable[[tf.Tensor, tuple], tuple[tuple, tuple]]


@functools.cache
def cache_size() -> int:
    """Bytes of the last level of the processor's cache."""
    found = [_USUAL_CACHE]
    for level in sorted(_CACHES.glob("index*/size")):
        text = level.read_text().strip()
        if text.endswith("K"):
            found.append(int(text[:-1]) << 10)
    return found[-1]


def rows_in_cache(width: int) -> int:
    """Rows of two float32 matrices of `width` columns that the cache holds."""
    return max(cache_size() // (2 * 4 * width), _FEWEST)


class Chunks(NamedTuple):
    """Rows cut into equal chunks, the last filled up with zeros.

    The sizes are Python ints where the number of rows is known.

    Args:
        rows: How many there are.
        number: Number of chunks, one at least.
        size: Rows of a chunk.
    """

    rows: int | tf.Tensor
    number: int | tf.Tensor
    size: int | tf.Tensor

    @classmethod
    def of(
        cls, tensor: tf.Tensor, width: int, most: int | None = None
    ) -> "Chunks":
        """The chunks of the rows of `tensor`.

        Args:
            tensor: Of shape `[rows, ...]`.
            width: Columns of the matrix that each row makes.
            most: Most rows of a chunk. Defaults to `rows_in_cache(width)`.
        """
        most = most or rows_in_cache(width)
        rows = tensor.shape[0]
        if rows is not None:
            number = max(-(-rows // most), 1)
            return cls(rows, number, max(-(-rows // number), 1))
        rows = tf.shape(tensor)[0]
        number = tf.maximum(-(-rows // most), 1)
        return cls(rows, number, tf.maximum(-(-rows // number), 1))

    def cut(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """The tensors as `[count, size, ...]`."""
        missing = self.number * self.size - self.rows

        def one(tensor: tf.Tensor) -> tf.Tensor:
            rest = tensor.shape[1:]
            fill = [[0, missing], *([[0, 0]] * len(rest))]
            shape = [self.number, self.size, *rest]
            return tf.reshape(tf.pad(tensor, fill), shape)

        return [one(tensor) for tensor in tensors]

    def walk(
        self, step: Step, start: tuple, dtypes: tuple[tf.DType, ...]
    ) -> tuple[tuple, tuple]:
        """Goes through the chunks one after the other.

        Args:
            step: Of a chunk's index and the sums so far; returns tensors of
                shape `[size, ...]`, which are kept, and the new sums.
            start: The sums before the first chunk.
            dtypes: Those of the kept tensors.

        Returns:
            The tensors of all chunks as `[rows, ...]`, and the sums.
        """
        if isinstance(self.number, int) and self.number == 1:
            kept, sums = step(tf.constant(0), start)
            return tuple(each[: self.rows] for each in kept), sums
        arrays = tuple(tf.TensorArray(dtype, self.number) for dtype in dtypes)

        def body(index: tf.Tensor, arrays: tuple, sums: tuple) -> tuple:
            kept, sums = step(index, sums)
            written = tuple(
                array.write(index, each) for array, each in zip(arrays, kept)
            )
            return index + 1, written, sums

        # One chunk at a time is the point.
        _, arrays, sums = tf.while_loop(
            lambda index, *_: index < self.number,
            body,
            (0, arrays, start),
            parallel_iterations=1,
        )
        return tuple(map(self._joined, arrays)), sums

    def _joined(self, array: tf.TensorArray) -> tf.Tensor:
        stacked = array.stack()
        rest = stacked.shape[2:]
        return tf.reshape(stacked, [-1, *rest])[: self.rows]
