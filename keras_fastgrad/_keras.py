"""Every touch of a private or version-dependent part of Keras.

The rest of the package imports these names and never reaches into
`keras.src` itself, so that a new Keras release is met in one file.
Checked against Keras 3.15.1.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_fastgrad needs the TensorFlow backend of Keras. "
        f"Received: backend '{keras.backend.backend()}'. "
        "Set the environment variable KERAS_BACKEND=tensorflow before Keras "
        "is imported."
    )

from keras.src.backend import compute_output_spec, set_keras_mask
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.backend.tensorflow.random import _cast_seed
from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    reduce_per_replica,
)
from keras.src.losses.loss import unscale_loss_for_distribution
from keras.src.models.functional import Functional
from keras.src.models.model import functional_init_arguments
from keras.src.trainers.trainer import model_supports_jit

__all__ = [
    "Functional",
    "TFOptimizer",
    "build_for",
    "enumerate_steps",
    "functional_init_arguments",
    "has_metrics",
    "innermost_optimizer",
    "is_users_own",
    "layers_of",
    "layers_without_jit",
    "loss_of",
    "loss_replaced",
    "model_supports_jit",
    "next_seed",
    "optional_to_none",
    "output_chain",
    "overrides_keras",
    "path_of",
    "reduce_per_replica",
    "set_keras_mask",
    "shadowed",
    "unscale_loss_for_distribution",
]


@contextlib.contextmanager
def shadowed(target: Any, **attributes: Any) -> Iterator[None]:
    """Gives one object other attributes for the length of a block.

    The names are written into the instance's `__dict__`, past the tracking of
    Keras and TensorFlow, and are what they were when the block is left, also
    after an exception.
    """
    missing = object()
    before = {name: target.__dict__.get(name, missing) for name in attributes}
    target.__dict__.update(attributes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                del target.__dict__[name]
            else:
                target.__dict__[name] = value


def layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """All layers of `model` with itself first, nested ones included."""
    return model._flatten_layers()


def path_of(layer: keras.layers.Layer) -> str:
    """Where `layer` stands in its model; its name where Keras gave no path.

    Keras gives the path while it builds a layer, and does not build one whose
    class has no `build`.
    """
    return layer.path or layer.name


def layers_without_jit(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers that XLA cannot compile, by their own word."""
    return [layer for layer in layers_of(model) if not layer.supports_jit]


def build_for(model: keras.Model, x: Any) -> None:
    """Builds all layers of `model` for inputs like `x`, without a step.

    Args:
        model: A model that may not be built.
        x: Tensors, of which only shapes and dtypes count.
    """

    def symbol(tensor: Any) -> keras.KerasTensor:
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        return keras.KerasTensor(tensor.shape, dtype)

    compute_output_spec(
        model, keras.tree.map_structure(symbol, x), training=False
    )


def overrides_keras(
    model: keras.Model, name: str, mixin: type, below: bool = False
) -> bool:
    """Tells whether a user's class, not Keras, supplies the method `name`.

    With `below`, only the classes that come after `mixin` in the method
    resolution order count: those that the mixin was laid over.
    """
    classes = type(model).__mro__
    if below:
        classes = classes[classes.index(mixin) + 1 :]
    for cls in classes:
        method = cls.__dict__.get(name)
        if method is not None and method is not mixin.__dict__.get(name):
            return method is not getattr(TensorFlowTrainer, name)
    return False


def next_seed(layer: Any) -> Any:
    """The seed that a Dropout layer draws next, for stateless functions."""
    return _cast_seed(layer.seed_generator.next())


def innermost_optimizer(optimizer: Any) -> Any:
    """The optimizer inside all loss-scaling wrappers."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def optional_to_none(model: keras.Model, step: Callable) -> Callable:
    """Wraps `step` so that a `tf.experimental.Optional` reaches it as None."""
    return model._autoconvert_optionals(step)


def enumerate_steps(
    epoch: Any, next_count: Callable[[int | None, bool], int]
) -> Iterator[tuple[int, int, Any]]:
    """Yields `(first step, last step, iterator)` for each call of an epoch.

    Takes the place of `EpochIterator._enumerate_iterator`. The steps of an
    epoch are those that Keras would run; how many of them a call takes is
    asked anew each time, so that it may change within an epoch, and is never
    more than are left.

    The unit is what `compile(steps_per_execution=...)` was given: Keras
    rounds an epoch up to full units and names a unit's last step even where
    the data ends before it. With the default of 1 both are the true ones.

    Args:
        epoch: The `EpochIterator` of a running `fit`.
        next_count: Called before each call with the steps left in the epoch
            (None where unknown) and whether that is sure, not merely what
            the epoch before came to; returns how many the call takes.
    """
    unit = epoch.steps_per_execution

    def rounded_up(steps: int) -> int:
        return -(-steps // unit) * unit

    epoch.data_adapter.on_epoch_begin()
    is_sure = bool(epoch.steps_per_epoch or epoch.data_adapter.num_batches)
    total = epoch.steps_per_epoch or epoch._num_batches or None
    step = 0
    if total is None:
        iterator = iter(epoch._get_iterator())
        while True:
            count = next_count(None, False)
            epoch._steps_seen = step + count
            yield step, step + count - 1, iterator
            step += count
    if epoch._current_iterator is None or epoch.steps_per_epoch is None:
        epoch._current_iterator = iter(epoch._get_iterator())
        epoch._steps_seen = 0
    while step < rounded_up(total):
        left = rounded_up(total) - step
        if epoch._num_batches:
            if epoch._steps_seen >= epoch._num_batches:
                if epoch.steps_per_epoch:
                    epoch._interrupted_warning()
                break
            in_data = rounded_up(epoch._num_batches) - epoch._steps_seen
            left = min(left, in_data)
        count = next_count(left, is_sure)
        epoch._steps_seen += count
        yield step, rounded_up(step + count) - 1, epoch._current_iterator
        step += count
    if epoch._num_batches and epoch._steps_seen >= epoch._num_batches:
        epoch._current_iterator = iter(epoch._get_iterator())
        epoch._steps_seen = 0
    epoch.data_adapter.on_epoch_end()


def is_users_own(model: keras.Model, name: str) -> bool:
    """Tells whether neither Keras nor this package supplies a method."""
    module = getattr(type(model), name).__module__
    return module.partition(".")[0] not in ("keras", __package__)


def output_chain(model: keras.Model) -> list[keras.layers.Layer]:
    """The last layers of a model with one output, from the last back.

    Only layers that are called once, with one tensor, and whose own output
    goes nowhere else. Empty for models that are no graph of layers, or that
    are not built.
    """
    graph = model._functional if isinstance(model, keras.Sequential) else model
    if not isinstance(graph, Functional) or keras.tree.is_nested(
        graph._outputs_struct
    ):
        return []
    nodes = [each for row in graph._nodes_by_depth.values() for each in row]
    chain: list[keras.layers.Layer] = []
    tensor, uses = graph.outputs[0], 0
    while True:
        layer, index, _ = tensor._keras_history
        used = sum(
            each is tensor for node in nodes for each in node.input_tensors
        )
        inputs = layer._inbound_nodes[index].input_tensors
        calls = sum(node.operation is layer for node in nodes)
        if calls != 1 or len(inputs) != 1 or used != uses:
            return chain
        chain.append(layer)
        tensor, uses = inputs[0], 1


def loss_of(model: keras.Model) -> Any:
    """What `compile` was given as the loss, or `None`."""
    compiled = getattr(model, "_compile_loss", None)
    return None if compiled is None else compiled._user_loss


def has_metrics(model: keras.Model) -> bool:
    """Tells whether `compile` was given metrics."""
    return getattr(model, "_compile_metrics", None) is not None


@contextlib.contextmanager
def loss_replaced(model: keras.Model, replace: Callable) -> Iterator[None]:
    """While the context is open, another function takes the one loss.

    Args:
        model: A compiled model with one output and one loss.
        replace: Of the resolved `keras.losses.Loss`; returns what is called
            with targets, predictions and sample weights in its place.
    """
    compiled = model._compile_loss

    def call(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not compiled.built:
            compiled.build(y_true, y_pred)
        (only,) = compiled._flat_losses
        replaced = only._replace(loss=replace(only.loss))
        with shadowed(compiled, _flat_losses=[replaced]):
            return type(compiled).call(compiled, y_true, y_pred, sample_weight)

    with shadowed(compiled, call=call):
        yield
