"""The tables of a model under one strategy, and a step that uses them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_fastgrad._keras import innermost_optimizer, layers_of, shadowed
from keras_fastgrad._tensorflow import (
    is_watched,
    outside_graphs,
    touch,
)
from keras_fastgrad.optimizers.rows.plan import RowPlan, rule_of
from keras_fastgrad.optimizers.rows.reading import RowGradient
from keras_fastgrad.optimizers.rows.rule import Rule
from keras_fastgrad.optimizers.rows.table import Table


class Tables:
    """All tables of a model that are updated by the row.

    Args:
        model: A compiled model. Tables open when a step is first traced.
        plan: Which of its embeddings.
        is_lazy: Leave rows as they are between two touches.

    Attributes:
        left_out: Why layers of the plan have no table after all, by path.
    """

    def __init__(
        self, model: keras.Model, plan: RowPlan, is_lazy: bool = False
    ) -> None:
        self._model, self._plan, self._is_lazy = model, plan, is_lazy
        self._optimizer: Any = getattr(model, "optimizer", None)
        self._embeddings = [
            layer
            for layer in layers_of(model)
            if isinstance(layer, keras.layers.Embedding)
        ]
        # Now, while no other rewrite stands in the optimizer's methods.
        self._rule = rule_of(self._optimizer) if plan.layers else None
        self._layers: list[tuple[keras.layers.Embedding, Table]] = []
        self.left_out: dict[str, str] = {}

    def _open(self) -> None:
        if not self._optimizer.built:
            self._optimizer.build(self._model.trainable_variables)
        inner = innermost_optimizer(self._optimizer)
        known = inner._trainable_variables_indices
        rule = self._rule
        if rule is None:
            return
        tables: dict[int, Table] = {}
        for layer in self._plan.layers:
            variable = layer._embeddings if layer.built else None
            if variable is None:
                self.left_out[layer.path] = (
                    "it was not built when the step was first traced"
                )
                continue
            if is_watched(variable) and id(variable) not in tables:
                self.left_out[layer.path] = (
                    "another model already updates it by the row"
                )
                continue
            if inner._var_key(variable) not in known:
                self.left_out[layer.path] = "it is not trained"
                continue
            if id(variable) not in tables:
                tables[id(variable)] = Table(
                    variable, inner, rule, self._is_lazy
                )
            self._layers.append((layer, tables[id(variable)]))

    @property
    def used_whole(self) -> dict[str, Table]:
        """Tables that a step reads or writes as a whole, by layer path."""
        return {
            layer.path: table
            for layer, table in self._layers
            if table.was_used_whole
        }

    def before_step(self) -> None:
        """Lets other models that share a table bring its rows up to date."""
        own = {id(table.variable) for table in self._all()}
        for layer in self._embeddings:
            if layer.built and id(layer._embeddings) not in own:
                touch(layer._embeddings)

    def settle(self) -> None:
        """Brings all rows up to date."""
        for table in self._all():
            table.settle()

    def close(self) -> None:
        """Brings all rows up to date and lets go of the variables."""
        for table in self._all():
            table.close()
        self._layers, self._plan = [], RowPlan()

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """While the context is open, a step reads and updates by the row."""
        if self._plan.layers and not self._layers:
            with outside_graphs():
                self._open()
        if not self._layers or self._rule is None:
            yield
            return
        with contextlib.ExitStack() as stack:
            for table in self._all():
                stack.enter_context(table.traced())
            for layer, table in self._layers:
                call = _row_call(layer, table)
                stack.enter_context(shadowed(layer, call=call))
            updates = _RowUpdates(self._optimizer, self._rule, self._all())
            stack.enter_context(updates.in_place())
            yield

    def _all(self) -> list[Table]:
        return list({id(table): table for _, table in self._layers}.values())


def _row_call(layer: keras.layers.Embedding, table: Table) -> Callable:
    keras_call = layer.call

    def call(inputs: Any) -> Any:
        if not isinstance(inputs, tf.Tensor) or not table.can_be_read():
            return keras_call(inputs)
        if inputs.dtype not in (tf.int32, tf.int64):
            inputs = tf.cast(inputs, tf.int32)
        # Counted from the end where negative, as Keras does.
        ids = tf.where(inputs < 0, inputs + layer.input_dim, inputs)
        return tf.cast(table.lookup(ids), layer.compute_dtype)

    return call


class _RowUpdates:
    """Takes the gradients of tables through Keras's `apply` by the row.

    In the place of its `IndexedSlices` Keras gets the values alone, a plain
    tensor: unscaling, the finite check and clipping are theirs. What is left
    for `_backend_update_step` is to update the rows they belong to.
    """

    def __init__(self, optimizer: Any, rule: Rule, tables: list[Table]) -> None:
        self._optimizer = optimizer
        self._inner = innermost_optimizer(optimizer)
        self._tables = {self._key(table.variable): table for table in tables}
        self._rows: dict[str, RowGradient] = {}
        self._rule = rule

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While the context is open, the optimizer updates by the row."""
        inner = self._inner
        with (
            shadowed(
                inner,
                _apply_weight_decay=self._weight_decay(
                    inner._apply_weight_decay
                ),
                _backend_update_step=self._update(inner._backend_update_step),
            ),
            shadowed(self._optimizer, apply=self._apply(self._optimizer.apply)),
        ):
            yield

    def _key(self, variable: Any) -> str:
        return self._inner._var_key(variable)

    def _apply(self, keras_apply: Callable) -> Callable:
        def apply(grads: Any, trainable_variables: Any = None) -> None:
            variables = trainable_variables
            if variables is None:
                variables = self._inner._trainable_variables
            variables, self._rows = list(variables), {}
            values = [
                self._values_of(gradient, variable)
                for gradient, variable in zip(grads, variables)
            ]
            keras_apply(values, variables)

        return apply

    def _values_of(self, gradient: Any, variable: Any) -> Any:
        table = self._tables.get(self._key(variable))
        if table is None or gradient is None:
            return gradient
        if not isinstance(gradient, tf.IndexedSlices):
            table.before_dense_update()
            return gradient
        prepared = table.prepared(gradient)
        self._rows[self._key(variable)] = prepared
        return prepared.values

    def _weight_decay(self, keras_decay: Callable) -> Callable:
        def decay(variables: list) -> None:
            keras_decay(
                [v for v in variables if self._key(v) not in self._rows]
            )

        return decay

    def _update(self, keras_update: Callable) -> Callable:
        def update(
            gradients: list, variables: list, learning_rate: Any
        ) -> None:
            pairs = list(zip(gradients, variables))
            dense = [p for p in pairs if self._key(p[1]) not in self._rows]
            keras_update(
                [gradient for gradient, _ in dense],
                [variable for _, variable in dense],
                learning_rate,
            )
            inner, decay = self._inner, None
            if inner.weight_decay is not None:
                decay = inner.weight_decay * tf.cast(learning_rate, tf.float32)
            scalars = self._rule.scalars(inner, learning_rate)
            for gradient, variable in pairs:
                waiting = self._rows.get(self._key(variable))
                if waiting is not None:
                    table = self._tables[self._key(variable)]
                    row_gradient = waiting._replace(values=gradient)
                    table.update(row_gradient, scalars, decay)

        return update
