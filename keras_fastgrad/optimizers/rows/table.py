"""A table of weights of which a training step touches only some rows."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._tensorflow import (
    in_control_flow,
    outside_graphs,
    stop_recording,
    variable_accessed,
    watched,
    watched_in_graph,
)
from keras_fastgrad.optimizers.row_sparse import with_unique_rows
from keras_fastgrad.optimizers.rows.history import LENGTH, History
from keras_fastgrad.optimizers.rows.reading import (
    Read,
    RowGradient,
    joined,
    reads_of,
)
from keras_fastgrad.optimizers.rows.rule import Pause, Rows, Rule, Scalars
from keras_fastgrad.optimizers.rows.series import NO_MOVE
from keras_fastgrad.optimizers.rows.tensors import (
    compiled,
    filled,
    gather,
    nothing,
    scatter,
    traced,
    with_few_lengths,
)

# Elements of a table that are brought up to date at a time.
_CHUNK = 1 << 20
_RESTS = -1.0


class Table:
    """An embedding's weights and optimizer slots, updated by the row.

    Where the optimizer also moves the rows that no gradient reaches, a row is
    brought up to date when it is next read: `found` rows are what a dense
    update of each step would have made of them. Whoever accesses the
    variables in another way finds them whole, since all rows are brought up
    to date before; `close` ends this.

    Args:
        variable: The Keras variable, of shape `[rows, width]`.
        optimizer: The innermost optimizer, built.
        rule: How it updates a row.
        is_lazy: Leave rows as they are between two touches. Defaults to
            `False`.
    """

    # Steps after which all rows are brought up to date.
    length = LENGTH

    def __init__(
        self,
        variable: keras.Variable,
        optimizer: Any,
        rule: Rule,
        is_lazy: bool = False,
    ) -> None:
        index = optimizer._get_variable_index(variable)
        slots = [held[index] for held in rule.slots(optimizer)]
        self.variable = variable
        self.was_used_whole = False
        self._optimizer, self._rule = optimizer, rule
        self._weights = variable.value
        self._slots = [slot.value for slot in slots]
        self._decays = bool(
            optimizer.weight_decay
        ) and optimizer._use_weight_decay(variable)
        self._pauses = not is_lazy and (rule.pauses(optimizer) or self._decays)
        self._caught_up = compiled(self._catch_up)
        self._updated = compiled(self._move)
        self._reads: list[Read] = []
        self._is_traced = False
        self._graph: Any = None
        self._watches = contextlib.ExitStack()
        if self._pauses:
            self._rests = rule.rests and not self._decays
            self._begin()
            self._settle = traced(self._bring_up_to_date)
            self._watches.enter_context(watched(variable, self._accessed))
            for slot in slots:
                self._watches.enter_context(watched(slot, self._slot_accessed))

    def _begin(self) -> None:
        series = self._rule.series(self._optimizer) or NO_MOVE
        with tf.device(self._weights.device):
            self._history = History(
                series, self._decays, self._rule.uses_totals, self.length
            )
            # The step at which a row was last touched. A row that rests has
            # slots of zero and owes nothing.
            self._last = tf.Variable(
                tf.zeros(self._weights.shape[0]), trainable=False
            )
        if self._rests:
            traced(self._find_resting)()

    @contextlib.contextmanager
    def traced(self) -> Iterator[None]:
        """While the context is open, a training step is traced."""
        self._reads, self._is_traced = [], True
        self._graph = tf.compat.v1.get_default_graph()
        with contextlib.ExitStack() as stack:
            if self._pauses:
                for each in (self._weights, *self._slots):
                    stack.enter_context(
                        watched_in_graph(each, self._used_whole)
                    )
            try:
                yield
            finally:
                self._reads, self._is_traced = [], False
                self._graph = None

    def can_be_read(self) -> bool:
        """Whether a lookup can be differentiated where the code now is.

        The gradient of a branch or a loop cannot hand on that of a table.
        """
        return not in_control_flow(self._graph)

    def lookup(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows `ids`, for the step being traced.

        Args:
            ids: Row numbers in any shape, from 0.

        Returns:
            Tensor of shape `[*ids.shape, width]`. Its gradient is
            `IndexedSlices` in which no row stands twice.
        """
        rows, position = tf.unique(tf.reshape(ids, [-1]))
        padded = with_few_lengths(rows)
        variable_accessed(self._weights)
        with stop_recording():
            found = self._found(padded, self._caught_up)
        graph = tf.compat.v1.get_default_graph()
        read = Read(rows, padded, found, graph)
        self._reads.append(read)
        shape = tf.constant(self._weights.shape.as_list(), rows.dtype)

        @tf.custom_gradient
        def taken(handle: tf.Tensor) -> tuple[tf.Tensor, Any]:
            def gradient(upstream: tf.Tensor) -> tf.IndexedSlices:
                read.padded_values = tf.math.unsorted_segment_sum(
                    upstream, position, tf.size(padded)
                )
                read.values = read.padded_values[: tf.size(rows)]
                return tf.IndexedSlices(read.values, rows, shape)

            return tf.gather(found.weights, position), gradient

        width = self._weights.shape[1:]
        out = tf.reshape(
            taken(self._weights.handle),
            tf.concat([tf.shape(ids), width.as_list()], 0),
        )
        out.set_shape(ids.shape.concatenate(width))
        return out

    def prepared(self, gradient: tf.IndexedSlices) -> RowGradient:
        """A gradient ready for `update`, with what the step has read.

        What was read is given out once: an update makes it old.
        """
        reads, self._reads = self._reads, []
        used = reads_of(gradient.indices, reads)
        if used is None:
            gradient = with_unique_rows(gradient)
            padded = with_few_lengths(gradient.indices)
            values = filled(gradient.values, tf.size(padded))
            return RowGradient(gradient.indices, padded, values, None)
        if len(used) > 1:
            return joined(used, gradient)
        (read,) = used
        values = read.padded_values
        if values is None or gradient.values is not read.values:
            values = filled(gradient.values, tf.size(read.padded))
        return RowGradient(read.rows, read.padded, values, read.found)

    def update(
        self,
        gradient: RowGradient,
        scalars: Scalars,
        decay: tf.Tensor | None,
    ) -> None:
        """Applies a step to the rows of `gradient`.

        Args:
            gradient: From `prepared`.
            scalars: The optimizer's numbers for this step.
            decay: The share of a weight that weight decay takes first, or
                `None`.
        """
        rows = gradient.rows
        decay = decay if self._decays else None
        found = gradient.found
        if found is None:
            found = self._found(gradient.padded, self._caught_up)
        new = self._updated(found, gradient.values, scalars, decay)
        count = tf.size(rows)
        self._write(
            rows,
            Rows(new.weights[:count], tuple(x[:count] for x in new.slots)),
        )
        if self._pauses:
            touched = tf.fill([count], self._history.now + 1)
            scatter(self._last, rows, touched)
            self._history.advance(scalars["step_size"], decay)
            tf.cond(self._history.is_full(), self._settle, nothing)

    def before_dense_update(self) -> None:
        """Makes the table whole within the step, since all rows will move."""
        if self._pauses:
            self._used_whole(writes=True)

    def settle(self) -> None:
        """Brings all rows up to date, where any is not."""
        if self._pauses:
            with outside_graphs():
                if float(self._history.now) > 0:
                    self._settle()

    def close(self) -> None:
        """Brings all rows up to date and lets go of the variables."""
        self.settle()
        self._watches.close()

    def _found(
        self, rows: tf.Tensor, caught_up: Callable[[Rows, Pause], Rows]
    ) -> Rows:
        found = Rows(
            gather(self._weights, rows),
            tuple(gather(slot, rows) for slot in self._slots),
        )
        if not self._pauses:
            return found
        last = tf.maximum(gather(self._last, rows), 0.0)
        return caught_up(found, self._history.pause(last))

    def _catch_up(self, rows: Rows, pause: Pause) -> Rows:
        return self._rule.caught_up(self._optimizer, rows, pause)

    def _move(
        self,
        rows: Rows,
        gradient: tf.Tensor,
        scalars: Scalars,
        decay: tf.Tensor | None,
    ) -> Rows:
        if decay is not None:
            rows = Rows(rows.weights - rows.weights * decay, rows.slots)
        return self._rule.updated(self._optimizer, rows, gradient, scalars)

    def _write(self, rows: tf.Tensor, new: Rows) -> None:
        scatter(self._weights, rows, new.weights)
        for slot, value in zip(self._slots, new.slots):
            scatter(slot, rows, value)

    def _bring_up_to_date(self) -> None:
        def chunk(rows: tf.Tensor) -> None:
            found = self._found(rows, self._catch_up)
            self._write(rows, found)
            if self._rests:
                self._note_resting(rows, found.slots)

        self._in_chunks(tf.where(self._last >= 0.0)[:, 0], chunk)
        if not self._rests:
            self._last.assign(tf.zeros_like(self._last))
        self._history.clear()

    def _find_resting(self) -> None:
        def chunk(rows: tf.Tensor) -> None:
            slots = tuple(gather(slot, rows) for slot in self._slots)
            self._note_resting(rows, slots)

        self._in_chunks(tf.range(tf.size(self._last)), chunk)

    def _note_resting(
        self, rows: tf.Tensor, slots: tuple[tf.Tensor, ...]
    ) -> None:
        moves = [tf.reduce_any(tf.not_equal(slot, 0), 1) for slot in slots]
        any_moves = tf.reduce_any(tf.stack(moves), axis=0)
        scatter(self._last, rows, tf.where(any_moves, 0.0, _RESTS))

    def _in_chunks(
        self, rows: tf.Tensor, chunk: Callable[[tf.Tensor], None]
    ) -> None:
        size = max(1, _CHUNK // max(1, self._weights.shape[1]))

        def body(begin: tf.Tensor) -> tf.Tensor:
            chunk(rows[begin : begin + size])
            return begin + size

        count = tf.size(rows)
        tf.while_loop(
            lambda begin: begin < count, body, [0], parallel_iterations=1
        )

    def _accessed(self) -> None:
        if not self._is_traced:
            self.settle()

    def _slot_accessed(self) -> None:
        if not self._is_traced:
            self.settle()
            with outside_graphs():
                self._wake_all()

    def _used_whole(self, writes: bool = False) -> None:
        self.was_used_whole = True
        with stop_recording():
            tf.cond(self._history.now > 0, self._settle, nothing)
            if writes:
                self._reads = []
                self._wake_all()

    def _wake_all(self) -> None:
        # A row may no longer rest once its slots were written from outside.
        if self._rests:
            self._last.assign(tf.maximum(self._last, 0.0))
