"""Workloads of LSTM and GRU layers, on sequences with a class in them."""

from functools import partial
from typing import Any

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Scale,
    Workload,
    classification,
    labelled,
)

_CLASSES = 10


def deep(cell: str, length: int = 100) -> Workload:
    """Two layers of 128 over 64 features.

    Args:
        cell: `"LSTM"` or `"GRU"`.
        length: Time steps.
    """
    return _workload(
        cell,
        name=cell.lower(),
        shape=(32, length, 64),
        units=(128, 128),
        scale=Scale("time steps", (25, 50, 100, 200), partial(deep, cell)),
    )


def wide(cell: str) -> Workload:
    """One layer of 512 over 256 features: large products."""
    return _workload(
        cell, f"{cell.lower()}_wide", shape=(16, 50, 256), units=(512,)
    )


def narrow(cell: str) -> Workload:
    """One layer of 64 over 32 features: many small operations."""
    return _workload(
        cell,
        f"{cell.lower()}_narrow",
        shape=(8, 100, 32),
        units=(64,),
        is_short=True,
    )


def _workload(
    cell: str,
    name: str,
    shape: tuple[int, int, int],
    units: tuple[int, ...],
    scale: Scale | None = None,
    is_short: bool = False,
) -> Workload:
    batch_size, length, features = shape
    depth = "one layer" if len(units) == 1 else f"{len(units)} layers"
    return Workload(
        name=name,
        what=f"{cell}, {depth} of {units[0]}, batch {batch_size}, "
        f"{length} steps, {features} features, Adam",
        batch_size=batch_size,
        batches=32,
        steps=64,
        build_model=lambda kit: _build(kit, cell, shape, units),
        make_data=lambda samples: labelled(
            samples, (length, features), _CLASSES, 0.1, (1, features)
        ),
        compile_arguments=classification,
        is_short=is_short,
        scale=scale,
    )


def _build(
    kit: Kit, cell: str, shape: tuple[int, int, int], units: tuple[int, ...]
) -> Any:
    layers = kit.keras.layers
    recurrent = [
        getattr(layers, cell)(width, return_sequences=depth > 0)
        for depth, width in zip(reversed(range(len(units))), units)
    ]
    return kit.sequential(
        [
            kit.keras.Input(shape[1:]),
            *recurrent,
            layers.Dense(_CLASSES, dtype="float32"),
        ]
    )
