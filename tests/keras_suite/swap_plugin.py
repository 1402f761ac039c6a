"""A pytest plugin: Keras's trainer tests with our classes in Keras's place.

The test file builds most of its models on Keras's TensorFlow trainer, the
others on `keras.Model`, `keras.Sequential` and `keras.src.Functional`. The
first is swapped where the file imports it from, before it does. The others
are swapped only in the names the file itself uses: Keras's own code keeps
its classes, as it does for a user of keras_fastgrad.
"""

import functools
import types
from typing import Any

import keras
import pytest
import record_plugin
from keras.src.backend.tensorflow import trainer as keras_trainer

import keras_fastgrad as fg
from keras_fastgrad.model import FastGradFunctional
from keras_fastgrad.telemetry import StepMeter


class SwappedTrainer(fg.FastGradMixin, keras_trainer.TensorFlowTrainer):
    """What the test file gets for `TensorFlowTrainer`."""


class Overlay(types.ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, module: types.ModuleType, **names: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(names)
        self._beneath = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beneath, name)


def pytest_configure(config: pytest.Config) -> None:
    keras_trainer.TensorFlowTrainer = SwappedTrainer
    count = StepMeter.count

    @functools.wraps(count)
    def noted(self: StepMeter, steps: Any) -> None:
        record_plugin.note("keras_fastgrad")
        count(self, steps)

    StepMeter.count = noted


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    models = {"Model": fg.FastGradModel, "Sequential": fg.FastGradSequential}
    functional = {"Functional": FastGradFunctional}
    for test_file in {item.getparent(pytest.Module) for item in items}:
        test_file.obj.models = Overlay(keras.src.models, **models, **functional)
        test_file.obj.keras = Overlay(
            keras,
            src=Overlay(keras.src, **models, **functional),
            models=Overlay(keras.models, **models),
            **models,
        )
