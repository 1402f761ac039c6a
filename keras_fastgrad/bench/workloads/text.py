"""Workloads of causal language models."""

from typing import Any

import numpy as np

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Data,
    Scale,
    Workload,
    classification,
    generator,
)

WIDTH = 256
HEADS = 4
LENGTH = 128


def lm(vocabulary: int = 8_000) -> Workload:
    """Four transformer blocks."""
    return _workload("lm", 4, vocabulary, steps=12, resized=lm)


def lm_wide(vocabulary: int = 128_000) -> Workload:
    """One block under a large vocabulary: the logits fill the memory."""
    return _workload("lm_wide", 1, vocabulary, steps=4, resized=lm_wide)


def _workload(
    name: str, depth: int, vocabulary: int, steps: int, resized: Any
) -> Workload:
    blocks = "1 layer" if depth == 1 else f"{depth} layers"
    return Workload(
        name=name,
        what=f"causal transformer, {blocks}, d {WIDTH}, {HEADS} heads, "
        f"16 x {LENGTH} tokens, {vocabulary:,} words, Adam",
        batch_size=16,
        batches=20,
        steps=steps,
        build_model=lambda kit: _build(kit, depth, vocabulary),
        make_data=lambda samples: _sentences(samples, vocabulary),
        compile_arguments=classification,
        embedding_rows=vocabulary,
        scale=Scale("vocabulary", (2_000, 8_000, 32_000, 128_000), resized),
    )


def _build(kit: Kit, depth: int, vocabulary: int) -> Any:
    layers = kit.keras.layers
    tokens = kit.keras.Input((LENGTH,), dtype="int32")
    hidden = layers.Embedding(vocabulary, WIDTH)(tokens)
    for _ in range(depth):
        attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(
            hidden, hidden, use_causal_mask=True
        )
        hidden = layers.LayerNormalization()(hidden + attended)
        inner = layers.Dense(4 * WIDTH, activation="gelu")(hidden)
        inner = layers.Dense(WIDTH)(inner)
        hidden = layers.LayerNormalization()(hidden + inner)
    logits = layers.Dense(vocabulary, dtype="float32")(hidden)
    return kit.model(tokens, logits)


def _sentences(samples: int, vocabulary: int) -> Data:
    # A word has a usual follower, which comes seven times in ten; the others
    # follow Zipf's law.
    draw = generator(1)
    follower = generator().permutation(vocabulary)
    shape = (samples, LENGTH + 1)
    words = (np.floor(float(vocabulary) ** draw.random(shape)) - 1).astype(int)
    follows = draw.random(shape) < 0.7
    for place in range(1, LENGTH + 1):
        usual = follower[words[:, place - 1]]
        words[:, place] = np.where(follows[:, place], usual, words[:, place])
    tokens = words.astype("int32")
    return Data(tokens[:, :-1], tokens[:, 1:])
