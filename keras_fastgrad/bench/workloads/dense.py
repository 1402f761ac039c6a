"""Workloads made of Dense layers."""

from typing import Any

import numpy as np

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Data,
    Scale,
    Workload,
    classification,
    generator,
    labelled,
)

_TASKS = 4
_FEATURES = 256


def mlp(batch_size: int = 32) -> Workload:
    """Dense 784-128-10, the smallest step: Python's share is largest."""
    return Workload(
        name="mlp",
        what=f"Dense 784-128-10, batch {batch_size}, Adam, accuracy",
        batch_size=batch_size,
        batches=640,
        steps=1920,
        build_model=_build_mlp,
        make_data=lambda samples: labelled(samples, (784,), 10, 0.1),
        compile_arguments=lambda kit: classification(kit, metrics=["accuracy"]),
        is_short=True,
        scale=Scale("batch size", (8, 32, 128, 512), mlp),
    )


def multitask() -> Workload:
    """A shared trunk of six Dense 512 under four heads."""
    return Workload(
        name="multitask",
        what="shared trunk of six Dense 512, four heads, batch 64, Adam",
        batch_size=64,
        batches=96,
        steps=192,
        build_model=_build_multitask,
        make_data=_multitask_data,
        compile_arguments=_multitask_compile,
        is_short=True,
    )


def _build_mlp(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.sequential(
        [
            kit.keras.Input((784,)),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )


def _build_multitask(kit: Kit) -> Any:
    layers = kit.keras.layers
    inputs = kit.keras.Input((_FEATURES,))
    hidden = inputs
    for _ in range(6):
        hidden = layers.Dense(512, activation="relu")(hidden)
    heads = [
        layers.Dense(10, dtype="float32", name=f"task_{task}")(hidden)
        for task in range(_TASKS)
    ]
    return kit.model(inputs, heads)


def _multitask_compile(kit: Kit) -> dict[str, Any]:
    arguments = classification(kit)
    return arguments | {"loss": [arguments["loss"]] * _TASKS}


def _multitask_data(samples: int) -> Data:
    # Each task reads another linear view of the same features.
    draw = generator(1)
    x = draw.standard_normal((samples, _FEATURES), dtype=np.float32)
    teachers = generator().standard_normal((_TASKS, _FEATURES, 10))
    y = [
        np.argmax(
            x @ teacher / 8 + draw.gumbel(size=(samples, 10)), axis=1
        ).astype("int32")
        for teacher in teachers
    ]
    return Data(x, y)
