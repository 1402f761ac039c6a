"""The smallest step: two Dense layers."""

from typing import Any

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Scale,
    Workload,
    classification,
    labelled,
)


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


def _build_mlp(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.sequential(
        [
            kit.keras.Input((784,)),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )
