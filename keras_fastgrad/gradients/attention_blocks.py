"""Attention in blocks of its scores, which are computed again on the way back.

Memory is linear in the length: of the way there only the outputs and two
numbers a row are kept.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_fastgrad.gradients.attention_scores import (
    Beside,
    passes_of,
    summed_to,
)
from keras_fastgrad.gradients.attention_whole import (
    Gradients,
    Operands,
    row_means,
)
from keras_fastgrad.gradients.compiled import wide, wide_dtype

# Queries below which a matrix product runs below its speed.
_FEWEST = 128


class Cut(NamedTuple):
    """How scores are cut: into several heads, or some queries of one head.

    Args:
        heads: Heads of a block.
        queries: Queries of a block.
        across: Blocks that the queries of a head make; one where a block has
            several heads.
    """

    heads: int
    queries: int
    across: int

    @classmethod
    def of(cls, heads: int, queries: int, keys: int, most: int) -> "Cut":
        """The largest blocks of at most `most` scores, or `_FEWEST` rows."""
        for number in range(heads, 0, -1):
            if heads % number == 0 and number * queries * keys <= most:
                return cls(number, queries, 1)
        rows = min(max(most // keys, _FEWEST), queries)
        across = -(-queries // rows)
        return cls(1, -(-queries // across), across)


class _Parts(NamedTuple):
    """A tensor `[batch, heads, rows, columns]`, cut as the scores are.

    An axis of size one is not cut: all blocks read the same.

    Args:
        cells: Of shape `[parts, heads, rows, columns]`.
        samples: Size of the batch.
        groups: Groups of heads of a sample.
        across: Blocks that the rows make.
        shape: That of the tensor.
    """

    cells: tf.Tensor
    samples: int | tf.Tensor
    groups: int
    across: int
    shape: tf.TensorShape

    @classmethod
    def of(cls, tensor: tf.Tensor, cut: Cut, by_rows: bool = True) -> "_Parts":
        batch, heads, rows, columns = tensor.shape
        each = cut.heads if heads > 1 else 1
        across = cut.across if by_rows and rows > 1 else 1
        high = cut.queries if across > 1 else rows
        fill = [[0, 0], [0, 0], [0, across * high - rows], [0, 0]]
        cells = tf.reshape(tf.pad(tensor, fill), [-1, each, high, columns])
        samples = tf.shape(tensor)[0] if batch is None else batch
        return cls(cells, samples, heads // each, across, tensor.shape)

    def place(self, block: "_Block") -> tf.Tensor:
        """The part that a block reads."""
        sample = tf.minimum(block.sample, self.samples - 1)
        group = tf.minimum(block.group, self.groups - 1)
        row = tf.minimum(block.row, self.across - 1)
        return (sample * self.groups + group) * self.across + row

    def at(self, block: "_Block") -> tf.Tensor:
        """What a block reads, as `[heads, rows, columns]`."""
        return self.cells[self.place(block)]

    def joined(self, cells: tf.Tensor) -> tf.Tensor:
        """Other cells as a tensor of the whole shape."""
        batch, heads, rows, _ = self.shape
        columns = cells.shape[-1]
        padded = self.across * self.cells.shape[-2]
        whole = tf.reshape(cells, [self.samples, heads, padded, columns])
        return tf.ensure_shape(
            whole[:, :, :rows], [batch, heads, rows, columns]
        )


class _Block(NamedTuple):
    """Which block: of a sample, a group of its heads, and a row of blocks."""

    sample: tf.Tensor
    group: tf.Tensor
    row: tf.Tensor


class Blocks(NamedTuple):
    """What the way back needs of the way there, in blocks."""

    outputs: tf.Tensor
    cells: tf.Tensor
    top: tf.Tensor
    inverse: tf.Tensor


class _Walk:
    """The operands of attention, cut into blocks."""

    def __init__(self, of: Operands, cut: Cut) -> None:
        def plane(tensor: tf.Tensor | None) -> _Parts | None:
            return None if tensor is None else _Parts.of(tensor, cut)

        self._of, self._cut = of, cut
        self.passes = passes_of(of.kind)
        self.query = _Parts.of(of.query, cut)
        self.key = _Parts.of(of.key, cut, by_rows=False)
        self.value = _Parts.of(of.value, cut, by_rows=False)
        self.mask, self.bias = plane(of.mask), plane(of.bias)
        self.units = self.query.samples * self.query.groups

    def block(self, unit: tf.Tensor, row: tf.Tensor) -> _Block:
        """The block of a unit, a group of heads of a sample, at a row."""
        return _Block(unit // self.key.groups, unit % self.key.groups, row)

    def scores(self, block: _Block) -> tf.Tensor:
        """The scores of a block."""
        return tf.matmul(
            self.query.at(block), self.key.at(block), transpose_b=True
        )

    def beside(self, block: _Block) -> Beside:
        """What stands beside the scores of a block."""
        return Beside(
            block.row * self._cut.queries + self._of.first,
            None if self.mask is None else self.mask.at(block),
            None if self.bias is None else self.bias.at(block),
            self._keep(block),
        )

    def _keep(self, block: _Block) -> tf.Tensor | None:
        if self._of.draws is None:
            return None
        # The last block of a head may reach beyond it; nobody reads that.
        _, heads, queries, _ = self.query.shape
        keys = self.key.shape[2]
        row = tf.cast(block.sample, tf.int64) * heads
        row = (row + tf.cast(block.group * self._cut.heads, tf.int64)) * queries
        row += tf.cast(block.row * self._cut.queries, tf.int64)
        shape = self._cut.heads, self._cut.queries, keys
        return tf.ensure_shape(self._of.draws.part(row * keys, shape), shape)


def attend(of: Operands, cut: Cut) -> Blocks:
    """Works out `outputs`, of shape `[batch, heads, queries, features]`."""
    walk = _Walk(of, cut)

    def body(index: tf.Tensor, arrays: tuple) -> tuple:
        block = walk.block(index // cut.across, index % cut.across)
        scores, beside = walk.scores(block), walk.beside(block)
        weights, top, inverse = walk.passes.weights(
            scores, beside.first, beside.mask, beside.bias
        )
        if beside.keep is not None:
            weights = walk.passes.dropped(weights, beside.keep)
        outputs = tf.matmul(weights, walk.value.at(block))
        return index + 1, _written(arrays, index, outputs, top, inverse)

    number, dtype = walk.units * cut.across, of.query.dtype
    rows, sums = walk.query.cells.shape[:-1], wide_dtype(dtype)
    shapes = [[*rows, columns] for columns in (of.value.shape[-1], 1, 1)]
    arrays = _arrays(number, *zip((dtype, sums, sums), shapes))
    _, arrays = _loop(number, body, (0, arrays))
    cells, top, inverse = map(_stacked, arrays, shapes)
    return Blocks(walk.query.joined(cells), cells, top, inverse)


def differentiate(
    of: Operands, cut: Cut, made: Blocks, upstream: tf.Tensor
) -> Gradients:
    """The gradients, from that of the outputs."""
    walk = _Walk(of, cut)
    above = _Parts.of(upstream, cut).cells
    means = row_means(above, made.cells)

    def gradients(block: _Block) -> tuple[tf.Tensor, ...]:
        index = walk.query.place(block)
        dropped, slopes = walk.passes.again(
            walk.scores(block),
            tf.matmul(above[index], walk.value.at(block), transpose_b=True),
            means[index],
            made.top[index],
            made.inverse[index],
            *walk.beside(block),
        )
        return (
            slopes,
            tf.matmul(slopes, walk.key.at(block)),
            tf.matmul(slopes, walk.query.cells[index], transpose_a=True),
            tf.matmul(dropped, above[index], transpose_a=True),
        )

    def unit(
        index: tf.Tensor, queries: tuple, others: tuple, bias: tuple
    ) -> tuple:
        def row(
            number: tf.Tensor, queries: tuple, sums: list, bias: tuple
        ) -> tuple:
            block = walk.block(index, number)
            slopes, of_query, *parts = gradients(block)
            sums = [each + part for each, part in zip(sums, wide(*parts))]
            queries = _written(queries, walk.query.place(block), of_query)
            return (
                number + 1,
                queries,
                sums,
                _added(walk.bias, bias, block, slopes),
            )

        zeros = [
            tf.zeros(each.cells.shape[1:], wide_dtype(each.cells.dtype))
            for each in (walk.key, walk.value)
        ]
        start = 0, queries, zeros, bias
        _, queries, sums, bias = _loop(cut.across, row, start)
        return index + 1, queries, _written(others, index, *sums), bias

    parts = walk.query, walk.key, walk.value
    of_query, *of_others = (
        (of.query.dtype, each.cells.shape) for each in parts
    )
    bias = () if walk.bias is None else (tf.zeros_like(walk.bias.cells),)
    start = (
        0,
        _arrays(walk.units * cut.across, of_query),
        _arrays(walk.units, *of_others),
        bias,
    )
    _, queries, others, bias = _loop(walk.units, unit, start)
    query, key, value = (
        each.joined(_stacked(array, each.cells.shape))
        for each, array in zip(parts, (*queries, *others))
    )
    of_bias = walk.bias.joined(bias[0]) if walk.bias else None
    return Gradients(query, key, value, of_bias)


def _added(
    like: _Parts | None, bias: tuple, block: _Block, slopes: tf.Tensor
) -> tuple:
    if like is None:
        return ()
    part = summed_to(slopes, like.at(block))
    return (tf.tensor_scatter_nd_add(bias[0], [[like.place(block)]], [part]),)


def _arrays(size: int | tf.Tensor, *each: tuple[tf.DType, Any]) -> tuple:
    """Arrays of `size` elements for each dtype and shape of all elements."""
    return tuple(
        tf.TensorArray(dtype, size, element_shape=shape[1:])
        for dtype, shape in each
    )


def _written(arrays: tuple, index: tf.Tensor, *values: tf.Tensor) -> tuple:
    return tuple(
        array.write(index, tf.cast(value, array.dtype))
        for array, value in zip(arrays, values)
    )


def _stacked(array: tf.TensorArray, shape: Any) -> tf.Tensor:
    return tf.ensure_shape(array.stack(), shape)


def _loop(count: int | tf.Tensor, body: Callable, start: tuple) -> tuple:
    if isinstance(count, int) and count == 1:
        return body(tf.constant(0), *start[1:])
    # One block at a time is the point.
    return tf.while_loop(
        lambda index, *_: index < count, body, start, parallel_iterations=1
    )
