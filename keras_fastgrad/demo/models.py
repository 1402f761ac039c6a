"""The demo's model, once for stock Keras and once for FastGradModel."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_fastgrad.model import FastGradModel
from keras_fastgrad.strategy import Strategy

# Chosen by measuring this model against stock Keras at its defaults, in turns,
# on two shared cores: `fastgrad=True` 1.0 to 1.1 times as fast, 16 steps an
# execution with fused updates 1.15, the same under XLA 1.6 to 1.8. Most of
# that is XLA: stock Keras told to use it too, with 16 steps an execution, was
# level with ours within the noise. XLA does not pay for every model, so
# neither `True` nor Keras's default takes it on a CPU.
STRATEGY = Strategy(
    jit_compile=True, steps_per_execution=16, optimizer_update="fused"
)

# About what float32 keeps of a number.
TWIN_OFFSET = 3e-7


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is trained, and for how long.

    Args:
        turns: Epochs of each model; the models take turns.
        steps: Training steps a turn.
        batch_size: Windows a step.
        length: Characters a window.
        units: Width of the GRU.
        learning_rate: Of Adam, at the start. It falls to a tenth of it along
            a cosine.
        strategy: What `compile(fastgrad=...)` is given.
        seed: Of weights, windows and the text that is written.
    """

    turns: int = 5
    steps: int = 300
    batch_size: int = 16
    length: int = 32
    units: int = 96
    learning_rate: float = 0.008
    strategy: Strategy = STRATEGY
    seed: int = 0

    @property
    def all_steps(self) -> int:
        """Training steps of each model in all."""
        return self.turns * self.steps


def build(
    base: type[keras.Model], characters: int, settings: Settings
) -> keras.Model:
    """The language model: one-hot characters, a GRU, logits.

    No Embedding: stock Keras squares the parts of a repeated id's gradient
    before it sums them, so that the two would train apart by design.

    Args:
        base: `keras.Model` or `FastGradModel`.
        characters: Size of the alphabet.
        settings: The widths, and the seed of the weights.

    Returns:
        A model of int32 `(batch, length)` to float32 logits
        `(batch, length, characters)`, not compiled.
    """
    keras.utils.set_random_seed(settings.seed)
    numbers = keras.Input((settings.length,), dtype="int32")
    one_hot = keras.ops.one_hot(numbers, characters)
    hidden = keras.layers.GRU(settings.units, return_sequences=True)(one_hot)
    return base(numbers, keras.layers.Dense(characters)(hidden))


def compile_arguments(settings: Settings) -> dict[str, Any]:
    """What both models are compiled with; all else is Keras's default."""
    schedule = keras.optimizers.schedules.CosineDecay(
        settings.learning_rate, settings.all_steps, alpha=0.1
    )
    return {
        "optimizer": keras.optimizers.Adam(schedule),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }


@dataclasses.dataclass(frozen=True)
class Models:
    """The two models with the same weights, and a twin of the second.

    Args:
        stock: A `keras.Model`.
        fast: A `FastGradModel`.
        twin: The same as `fast`, with each weight off by `TWIN_OFFSET` of
            itself at the start. How far it ends from `fast` says what
            rounding may grow to in this training.
    """

    stock: keras.Model
    fast: FastGradModel
    twin: FastGradModel


def compiled_models(characters: int, settings: Settings) -> Models:
    """Builds and compiles all three."""
    stock = build(keras.Model, characters, settings)
    stock.compile(**compile_arguments(settings))
    fast, twin = (build(FastGradModel, characters, settings) for _ in range(2))
    for model in (fast, twin):
        model.compile(**compile_arguments(settings), fastgrad=settings.strategy)
    weights = stock.get_weights()
    fast.set_weights(weights)
    twin.set_weights(_nudged(weights, settings.seed))
    return Models(stock, fast, twin)


def _nudged(weights: list[np.ndarray], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        (
            weight * (1.0 + TWIN_OFFSET * rng.choice([-1, 1], weight.shape))
        ).astype(weight.dtype)
        for weight in weights
    ]


def weight_difference(one: keras.Model, other: keras.Model) -> float:
    """The largest difference of two weights in the same place."""
    return max(
        float(np.abs(weight - its_like).max())
        for weight, its_like in zip(one.get_weights(), other.get_weights())
    )
