"""The constructors that a workload is built with: Keras, ours, tf-keras."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

import keras_fastgrad as fg


@dataclasses.dataclass(frozen=True)
class Kit:
    """One library's constructors, so that one builder serves them all.

    Args:
        keras: The module with `layers`, `losses`, `optimizers`.
        model: Constructor of a functional model.
        sequential: Constructor of a sequential model.
        adopt: Makes a ready functional model one of this kit.
    """

    keras: Any
    model: Callable[..., Any]
    sequential: Callable[..., Any]
    adopt: Callable[[Any], Any]


def kit_of(engine: str) -> Kit:
    """The constructors of an engine.

    Args:
        engine: `"keras"`, `"keras-eager"`, `"fastgrad"` or `"tf-keras"`.

    Raises:
        ImportError: If tf-keras is asked for and not installed.
    """
    if engine == "fastgrad":
        return Kit(
            keras,
            fg.FastGradModel,
            fg.FastGradSequential,
            fg.FastGradModel.from_model,
        )
    module: Any = keras
    if engine == "tf-keras":
        import tf_keras

        module = tf_keras
    return Kit(module, module.Model, module.Sequential, lambda model: model)
