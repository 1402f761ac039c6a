"""Workloads with 200 million embedding parameters."""

from typing import Any

import numpy as np

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Data,
    Scale,
    Workload,
    generator,
)

ROWS = 3_125_000
WIDTH = 64
_HISTORY = 20
_SIZES = (20_000, 200_000, 1_000_000, 3_000_000)


def recsys200m(rows: int = ROWS) -> Workload:
    """A GRU over the user's history and an item, from one shared table."""
    return Workload(
        name="recsys200m",
        what=f"embedding {rows:,} x {WIDTH}, GRU 64 over 20 items and one "
        "item, Dense 128, batch 256, Adam",
        batch_size=256,
        batches=20,
        steps=10,
        build_model=lambda kit: _build_sequence(kit, rows),
        make_data=lambda samples: _sequence_data(samples, rows),
        compile_arguments=_binary,
        embedding_rows=rows,
        scale=Scale("table rows", _SIZES, recsys200m),
    )


def recsys_pool(rows: int = ROWS) -> Workload:
    """The mean of a history's 20 rows."""
    return Workload(
        name="recsys_pool",
        what=f"embedding {rows:,} x {WIDTH}, mean of 20, Dense 128, "
        "batch 256, Adam",
        batch_size=256,
        batches=20,
        steps=10,
        build_model=lambda kit: _build_pool(kit, rows),
        make_data=lambda samples: _pool_data(samples, rows),
        compile_arguments=_binary,
        embedding_rows=rows,
        scale=Scale("table rows", _SIZES, recsys_pool),
    )


def _build_sequence(kit: Kit, rows: int) -> Any:
    layers = kit.keras.layers
    history = kit.keras.Input((_HISTORY,), dtype="int32", name="history")
    item = kit.keras.Input((1,), dtype="int32", name="item")
    embedding = layers.Embedding(rows, WIDTH)
    user = layers.GRU(64)(embedding(history))
    wanted = layers.Flatten()(embedding(item))
    hidden = layers.Concatenate()([user, wanted])
    score = _score(kit, hidden)
    return kit.model({"history": history, "item": item}, score)


def _build_pool(kit: Kit, rows: int) -> Any:
    layers = kit.keras.layers
    history = kit.keras.Input((_HISTORY,), dtype="int32")
    embedded = layers.Embedding(rows, WIDTH)(history)
    pooled = layers.GlobalAveragePooling1D()(embedded)
    return kit.model(history, _score(kit, pooled))


def _score(kit: Kit, hidden: Any) -> Any:
    layers = kit.keras.layers
    hidden = layers.Dense(128, activation="relu")(hidden)
    return layers.Dense(1, dtype="float32")(hidden)


def _binary(kit: Kit) -> dict[str, Any]:
    loss = kit.keras.losses.BinaryCrossentropy(from_logits=True)
    return {"optimizer": "adam", "loss": loss}


def _zipf(shape: tuple[int, int], rows: int) -> np.ndarray:
    # The inverse of the distribution function of Zipf's law, exponent 1.
    uniform = generator(1).random(shape)
    return (np.floor(float(rows) ** uniform) - 1).astype("int32")


def _clicks(ids: np.ndarray, rows: int) -> np.ndarray:
    # Each id has a taste; a click is likely where the tastes add up.
    taste = generator().standard_normal(rows, dtype=np.float32)
    chance = 1 / (1 + np.exp(-taste[ids].sum(axis=1)))
    clicks = generator(2).random(len(ids)) < chance
    return clicks[:, None].astype("float32")


def _sequence_data(samples: int, rows: int) -> Data:
    ids = _zipf((samples, _HISTORY + 1), rows)
    x = {"history": ids[:, :_HISTORY], "item": ids[:, _HISTORY:]}
    return Data(x, _clicks(ids, rows))


def _pool_data(samples: int, rows: int) -> Data:
    ids = _zipf((samples, _HISTORY), rows)
    return Data(ids, _clicks(ids, rows))
