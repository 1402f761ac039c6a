"""`model.fastgrad`: what runs, how to change it, and what it did."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from keras_fastgrad import explain
from keras_fastgrad._keras import (
    enumerate_steps,
    innermost_optimizer,
    layers_of,
    layers_without_jit,
    model_supports_jit,
)
from keras_fastgrad.execution import (
    Cadence,
    Execution,
    make_train_function,
)
from keras_fastgrad.gradients.rewrites import plan, rewrites_of
from keras_fastgrad.optimizers.fused import no_kernel_reason
from keras_fastgrad.optimizers.rows.plan import RowPlan, plan_rows
from keras_fastgrad.optimizers.rows.tables import Tables
from keras_fastgrad.resolution import Facts, Resolution, resolve
from keras_fastgrad.strategy import Strategy, as_strategy, keeps_slices
from keras_fastgrad.telemetry import StepMeter


class FastGrad:
    """The strategy of one model. Reached as `model.fastgrad`.

    Example:
    >>> import keras, keras_fastgrad as fg
    >>> model = fg.FastGradSequential([keras.Input((4,)),
    ...                                keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> model.fastgrad.strategy.optimizer_update
    'fused'
    >>> model.fastgrad.use(fg.Strategy(steps_per_execution=8))
    >>> model.fastgrad.strategy.steps_per_execution
    8
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._flag: Any = True
        self._is_stock = False
        self._cadence = Cadence(1)
        self._told: set[str] = set()
        self._fit_begins = False
        self._meter = StepMeter()
        self._tables = Tables(model, RowPlan())

    def belongs_to(self, model: keras.Model) -> bool:
        """Tells whether this is the handle of `model`, not of its original.

        `copy.copy` copies a model's attributes, the handle among them.
        """
        return self._model is model

    @property
    def flag(self) -> bool | str | Strategy:
        """The value that `compile(fastgrad=...)` or `use` was last given."""
        return self._flag

    @property
    def is_on(self) -> bool:
        """Whether our train function runs.

        With `compile(fastgrad=False)` Keras's own does. After `use(False)`
        ours goes on with every part of it switched off.
        """
        return not self._is_stock

    @property
    def strategy(self) -> Strategy:
        """What the next step runs, with every `"auto"` decided."""
        return self._resolve().strategy

    def use(self, strategy: bool | str | Strategy) -> None:
        """Changes the strategy from the next step on.

        May be called at any time after `compile`, also by a callback inside
        `fit`. Weights, optimizer slots and iterations go on as they are; no
        batch is lost or used twice.

        Args:
            strategy: A `Strategy`, or any value that
                `compile(fastgrad=...)` takes.

        Raises:
            ValueError: If the value is not allowed, the model is not
                compiled, or `precision="mixed_float16"` meets an optimizer
                without loss scaling. Nothing is changed then.
        """
        wanted = as_strategy(strategy)
        if not self._model.compiled:
            raise ValueError(
                "`model.fastgrad.use` needs a compiled model. Received: a "
                f"model '{self._model.name}' that is not. Call "
                "`model.compile(...)` first, or pass `fastgrad=` to it."
            )
        require_loss_scale(wanted, self._model.optimizer)
        self._flag = strategy
        self._is_stock = False
        self._tables.close()
        self._cadence.steps_per_call = self._resolve().steps_per_execution
        if self._model.train_function is not None:
            self._model.make_train_function(force=True)

    def explain(self) -> str:
        """What runs and why, as a table for a terminal.

        Returns:
            Text; each field of the strategy with what was asked, what runs
            and the reason, then what the model's parts fall back to.
        """
        resolution = self._resolve()
        return explain.as_text(
            self._model.name,
            self._flag,
            resolution,
            plan(self._model, rewrites_of(resolution.strategy)),
            self._tables,
            self.telemetry(),
        )

    def telemetry(self) -> dict[str, float]:
        """What was counted so far, as plain numbers.

        Returns:
            A dict: `steps`, training steps run; `traces`, how often the step
            was traced; `iterations`, updates of the optimizer.
        """
        optimizer = innermost_optimizer(getattr(self._model, "optimizer", None))
        return {
            "steps": self._meter.steps,
            "traces": self._meter.traces,
            "iterations": int(optimizer.iterations.numpy()) if optimizer else 0,
        }

    @property
    def meter(self) -> StepMeter:
        """The live counters, for monitors."""
        return self._meter

    def configure(self, flag: bool | str | Strategy) -> None:
        """Takes the flag of `compile`, which has checked it."""
        self._flag = flag
        self._is_stock = flag is False
        self._tables.close()
        self._cadence = Cadence(self._resolve().steps_per_execution)
        self._told = set()

    def make_train_function(
        self, is_plain_step: bool, logs_from_state: bool
    ) -> Any:
        """Makes the train function for the strategy in force."""
        resolution = self._resolve()
        self._tell_refusals(resolution)
        execution = Execution(
            strategy=resolution.strategy,
            tables=self._open_tables(resolution),
            sums_slices=not keeps_slices(as_strategy(self._flag)),
            is_plain_step=is_plain_step,
            logs_from_state=logs_from_state,
            meter=self._meter,
            cadence=self._cadence,
        )
        return make_train_function(self._model, execution)

    def settle(self) -> None:
        """Brings every row of every embedding up to date.

        With `sparse_update="deferred"` a row is brought up to date when it is
        next read. Keras's own ways to a weight (`evaluate`, `predict`,
        `save`, `export`, `get_weights`, a variable's value) and the end of an
        epoch do this by themselves.
        """
        self._tables.settle()

    def _open_tables(self, resolution: Resolution) -> Tables:
        self._tables.close()
        is_lazy = resolution.strategy.sparse_update == "lazy"
        self._tables = Tables(self._model, resolution.rows, is_lazy)
        return self._tables

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """Marks that the next epoch iterator to be seen is `fit`'s own."""
        self._fit_begins = True
        with self._cadence.of_one_fit():
            try:
                yield
            finally:
                self._fit_begins = False

    def govern(self, epoch_iterator: Any) -> None:
        """Lets the strategy say how many steps each call of `fit` takes."""
        if not self._fit_begins:
            return
        self._fit_begins = False
        epoch_iterator._enumerate_iterator = lambda: self._steps_of(
            epoch_iterator
        )

    def _steps_of(self, epoch_iterator: Any) -> Iterator[tuple[int, int, Any]]:
        # Callbacks find every row up to date at an epoch's end, also where
        # the epoch was broken off.
        try:
            yield from enumerate_steps(epoch_iterator, self._cadence.fix_next)
        finally:
            self.settle()

    def _resolve(self) -> Resolution:
        wanted = as_strategy(self._flag)
        return resolve(wanted, facts_of(self._model, wanted))

    def _tell_refusals(self, resolution: Resolution) -> None:
        for field in resolution.refused:
            reason = resolution.reasons[field]
            if reason not in self._told:
                self._told.add(reason)
                warnings.warn(
                    f"Strategy({field}="
                    f"{getattr(as_strategy(self._flag), field)!r}) falls "
                    f"back to {getattr(resolution.strategy, field)!r}: "
                    f"{reason}.",
                    stacklevel=2,
                )


def facts_of(model: keras.Model, strategy: Strategy) -> Facts:
    """What is true of `model`, as far as `strategy` depends on it."""
    return Facts(
        jit_compile=bool(model.jit_compile) if model.compiled else False,
        steps_per_execution=model.steps_per_execution,
        run_eagerly=model.run_eagerly,
        no_jit_reason=_no_jit_reason(model),
        no_kernel_reason=no_kernel_reason(model.optimizer)
        if getattr(model, "optimizer", None) is not None
        else "the model has no optimizer yet",
        has_embedding=any(
            isinstance(layer, keras.layers.Embedding)
            for layer in layers_of(model)
        ),
        rows=plan_rows(model, strategy.sparse_update),
    )


def _no_jit_reason(model: keras.Model) -> str | None:
    layers = layers_without_jit(model)
    if layers:
        names = ", ".join(
            f"'{layer.name}' ({type(layer).__name__})" for layer in layers
        )
        return f"XLA cannot compile layer {names}; move it into the dataset"
    if not model_supports_jit(model):
        return "XLA is off on this machine, or deterministic ops are on"
    return None


def require_loss_scale(strategy: Strategy, optimizer: Any) -> None:
    """Refuses float16 with an optimizer that does not scale the loss."""
    if strategy.precision != "mixed_float16":
        return
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales or getattr(optimizer, "loss_scale_factor", None):
        return
    raise ValueError(
        "Strategy(precision='mixed_float16') needs an optimizer that scales "
        f"the loss. Received: {type(optimizer).__name__} without loss "
        "scaling. Compile with keras.optimizers.LossScaleOptimizer("
        "optimizer), or give the strategy to compile(fastgrad=...), which "
        "wraps the optimizer itself."
    )
