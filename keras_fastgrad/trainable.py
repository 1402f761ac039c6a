"""Keeps the set of trained weights the same through all traces of a step.

A step is traced again for a batch of another shape, the tail of an epoch
say. Keras would then follow a `trainable` flag that was changed in the
meantime, in the middle of a fit. Here a step trains the weights that were
trainable when it was first traced, until `compile` or
`make_train_function(force=True)` makes a new one.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_fastgrad._keras import layers_of


class TrainableState:
    """The `trainable` flags of a model at the first trace of its step."""

    def __init__(self) -> None:
        self._flags: dict[int, bool] = {}

    @contextlib.contextmanager
    def held(self, model: keras.Model) -> Iterator[None]:
        """While the context is open, the first trace's flags are in force.

        A step that runs eagerly is never traced and follows each change.
        """
        if model.run_eagerly:
            yield
            return
        changed = [
            (item, item._trainable)
            for item in _layers_and_weights(model)
            if self._flags.get(id(item), item._trainable) != item._trainable
        ]
        try:
            for item, _ in changed:
                item._trainable = self._flags[id(item)]
            yield
        finally:
            for item, flag in changed:
                item._trainable = flag
        if not self._flags:
            # Only now, since the first trace may build layers.
            self._flags = {
                id(item): item._trainable for item in _layers_and_weights(model)
            }


def _layers_and_weights(model: keras.Model) -> list[Any]:
    layers = layers_of(model)
    return [*layers, *(weight for layer in layers for weight in layer.weights)]
