"""The base classes: the flag, and a `train_step` of a few lines."""

import inspect
from typing import TYPE_CHECKING, Any

import keras

from keras_fastgrad import step
from keras_fastgrad._keras import (
    Functional,
    functional_init_arguments,
    overrides_keras,
)
from keras_fastgrad.handle import FastGrad, require_loss_scale
from keras_fastgrad.strategy import SavedFlag, Strategy, as_strategy

# What our own logs are made of; a class that changes one has its logs
# taken from each step as it returns them.
_LOG_METHODS = ("train_step", "compute_metrics", "get_metrics_result")

# The mixin stands before a Keras model class; the type checker is told so.
_Base: type = keras.Model if TYPE_CHECKING else object


class FastGradMixin(_Base):
    """All the behaviour of this package, over any Keras model class.

    Name it before the Keras class. The model keeps `compile`, `fit` and
    every other method, and a `train_step`, `compute_loss` or
    `compute_metrics` of its own.

    Example:
    >>> import keras, keras_fastgrad as fg
    >>> class Ranker(fg.FastGradMixin, keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.score = keras.layers.Dense(1)
    ...     def call(self, x):
    ...         return self.score(x)
    >>> model = Ranker()
    >>> model.compile("adam", "mse", fastgrad=True)
    """

    # Set by Keras's trainer.
    optimizer: Any
    train_function: Any

    @property
    def fastgrad(self) -> FastGrad:
        """The handle: `.strategy`, `.use()`, `.explain()`, `.telemetry()`."""
        handle = self.__dict__.get("_fastgrad")
        if handle is None or not handle.belongs_to(self):
            # Past Keras's tracking: the handle is no part of the model.
            handle = self.__dict__["_fastgrad"] = FastGrad(self)
        return handle

    def compile(
        self,
        *args: Any,
        fastgrad: bool | str | Strategy = True,
        **kwargs: Any,
    ) -> None:
        """Configures the model for training.

        Args:
            *args: As in `keras.Model.compile`.
            fastgrad: `False`: plain Keras, to the bit. `True`, which means
                `"exact"`: the fastest strategy that trains as Keras does.
                `"fast"`: also those with a stated tolerance; the same as
                `"exact"` in this version. A `Strategy`: that one. Defaults
                to `True`.
            **kwargs: As in `keras.Model.compile`.

        Raises:
            ValueError: If `fastgrad` is none of these. Nothing is changed
                then.
        """
        strategy = as_strategy(fastgrad)
        keras_compile = super().compile
        bound = inspect.signature(keras_compile).bind(*args, **kwargs)
        bound.apply_defaults()
        if "optimizer" in bound.arguments:
            bound.arguments["optimizer"] = _optimizer_for(
                strategy,
                bound.arguments["optimizer"],
                bound.arguments.get("auto_scale_loss", True),
            )
        keras_compile(*bound.args, **bound.kwargs)
        self.fastgrad.configure(fastgrad)

    def get_compile_config(self) -> dict[str, Any]:
        """The arguments of `compile`, the flag among them, serialized."""
        config = super().get_compile_config()
        if config:
            config["auto_scale_loss"] = keras.saving.serialize_keras_object(
                SavedFlag(self.fastgrad.flag)
            )
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles the model as `get_compile_config` found it.

        As in Keras, a class with a `compile` of its own has to override this
        too, or is left uncompiled with a warning.
        """
        config = dict(config)
        saved = keras.saving.deserialize_keras_object(
            config.pop("auto_scale_loss", None)
        )
        flag = saved.flag if isinstance(saved, SavedFlag) else True
        if overrides_keras(self, "compile", FastGradMixin):
            super().compile_from_config(config)
            if self.compiled:
                self.fastgrad.configure(flag)
            return
        arguments = keras.saving.deserialize_keras_object(config)
        self.compile(**arguments, fastgrad=flag)
        if self.built and self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model. All arguments are those of `keras.Model.fit`.

        Callbacks of this package that add figures to the logs are called
        before the others, so that every logger sees the figures.
        """
        fit = super().fit
        arguments = inspect.signature(fit).bind(*args, **kwargs)
        callbacks = arguments.arguments.get("callbacks")
        if isinstance(callbacks, (list, tuple)):
            arguments.arguments["callbacks"] = sorted(
                callbacks, key=lambda item: not hasattr(item, "adds_to_logs")
            )
        with self.fastgrad.fitting():
            return fit(*arguments.args, **arguments.kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates the model. All arguments are those of Keras."""
        self.fastgrad.settle()
        return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts. All arguments are those of Keras."""
        self.fastgrad.settle()
        return super().predict(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates one batch. All arguments are those of Keras."""
        self.fastgrad.settle()
        return super().test_on_batch(*args, **kwargs)

    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts for one batch. All arguments are those of Keras."""
        self.fastgrad.settle()
        return super().predict_on_batch(*args, **kwargs)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Trains on one batch. Override it as in Keras."""
        keeps_own = overrides_keras(
            self, "train_step", FastGradMixin, below=True
        )
        if keeps_own or not self.fastgrad.is_on:
            return super().train_step(data)
        return step.train(self, data)

    def make_train_function(self, force: bool = False) -> Any:
        """Makes what `fit` calls for each execution, as in Keras."""
        if _makes_own_function(self) or not self.fastgrad.is_on:
            return super().make_train_function(force=force)
        if self.train_function is None or force:
            logs_from_state = not any(
                overrides_keras(self, name, FastGradMixin)
                for name in _LOG_METHODS
            )
            is_plain_step = not overrides_keras(
                self, "train_step", FastGradMixin
            )
            self.train_function = self.fastgrad.make_train_function(
                is_plain_step,
                logs_from_state and self._distribute_strategy is None,
            )
        return self.train_function

    def _maybe_symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> None:
        # The one place where `fit` shows its epoch iterator.
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        if iterator is not None and not _makes_own_function(self):
            self.fastgrad.govern(iterator)


@keras.saving.register_keras_serializable(package="keras_fastgrad")
class FastGradModel(FastGradMixin, keras.Model):
    """`keras.Model` that trains faster.

    By subclass, or as `FastGradModel(inputs, outputs)`.

    Example:
    >>> import keras, keras_fastgrad as fg
    >>> inputs = keras.Input((8,))
    >>> model = fg.FastGradModel(inputs, keras.layers.Dense(1)(inputs))
    >>> model.compile("adam", "mse", fastgrad=True)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Makes a `FastGradFunctional` where inputs and outputs are given."""
        if cls is FastGradModel and functional_init_arguments(args, kwargs):
            cls = FastGradFunctional
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if functional_init_arguments(args, kwargs):
            # Keras would make `FastGradModel` itself a Functional, and spoil
            # it for every other subclass. Ours changes the user's class only.
            _make_functional(type(self))
            Functional.__init__(self, *args, **kwargs)
        else:
            super().__init__(*args, **kwargs)

    @classmethod
    def from_model(cls, model: keras.Model) -> "FastGradModel":
        """A Functional or Sequential model as a FastGradModel.

        Layers and weights are shared with `model`, not copied. It has to be
        compiled.

        Args:
            model: A `keras.Model(inputs, outputs)`, such as those of
                `keras.applications`, or a `keras.Sequential`.

        Returns:
            A FastGradModel; a `FastGradSequential` for a Sequential.

        Raises:
            ValueError: If `model` is of another class, whose own methods
                would be lost.
        """
        if type(model) is keras.Sequential:
            layers = model.layers
            if model.built and model.inputs:
                layers = [*model.inputs, *layers]
            return FastGradSequential(layers, name=model.name)
        if type(model) is Functional:
            return cls(
                inputs=model.input, outputs=model.output, name=model.name
            )
        raise ValueError(
            "`from_model` takes a Functional or Sequential model. Received: "
            f"{model.name!r} of class {type(model).__name__}. Change the base "
            "class instead: `class Fast(keras_fastgrad.FastGradMixin, "
            f"{type(model).__name__})`."
        )


@keras.saving.register_keras_serializable(package="keras_fastgrad")
class FastGradFunctional(FastGradModel, Functional):
    """What `FastGradModel(inputs, outputs)` gives."""

    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        Functional.__init__(self, inputs, outputs, name=name, **kwargs)


@keras.saving.register_keras_serializable(package="keras_fastgrad")
class FastGradSequential(FastGradModel, keras.Sequential):
    """`keras.Sequential` that trains faster.

    Example:
    >>> import keras, keras_fastgrad as fg
    >>> model = fg.FastGradSequential([keras.Input((8,)),
    ...                                keras.layers.Dense(1)])
    >>> model.compile("adam", "mse", fastgrad=True)
    """

    def __init__(
        self,
        layers: list[keras.layers.Layer] | None = None,
        trainable: bool = True,
        name: str | None = None,
    ) -> None:
        keras.Sequential.__init__(self, layers, trainable, name)


def _makes_own_function(model: keras.Model) -> bool:
    # Such a function takes the steps that `compile` was given, not ours.
    return overrides_keras(
        model, "make_train_function", FastGradMixin, below=True
    )


def _make_functional(cls: type) -> None:
    """Puts `FastGradFunctional` in the place of `FastGradModel`."""
    if issubclass(cls, Functional):
        return
    cls.__bases__ = tuple(
        FastGradFunctional if base is FastGradModel else base
        for base in cls.__bases__
    )
    for base in cls.__bases__:
        if issubclass(base, FastGradModel):
            _make_functional(base)


def _optimizer_for(
    strategy: Strategy, optimizer: Any, auto_scale_loss: bool
) -> Any:
    # As Keras does for a model whose own policy is float16.
    if strategy.precision != "mixed_float16" or optimizer is None:
        return optimizer
    optimizer = keras.optimizers.get(optimizer)
    if auto_scale_loss and not isinstance(
        optimizer, keras.optimizers.LossScaleOptimizer
    ):
        optimizer = keras.optimizers.LossScaleOptimizer(
            optimizer, name="loss_scale_optimizer"
        )
    require_loss_scale(strategy, optimizer)
    return optimizer
