"""Lets a trained model write."""

import keras
import numpy as np


def generate(
    model: keras.Model,
    prompt: np.ndarray,
    count: int,
    temperature: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Goes on with `prompt`, one character at a time.

    Args:
        model: A model of int32 `(batch, length)` to logits
            `(batch, length, characters)`.
        prompt: The first `length` numbers, shape `(length,)`.
        count: How many numbers to draw.
        temperature: Below 1 the likely characters are drawn more often than
            the model says, above 1 less often.
        rng: Where the draws come from.

    Returns:
        The numbers drawn, int32, shape `(count,)`, without the prompt.
    """
    window = prompt[None, :]
    drawn = np.empty(count, "int32")
    for place in range(count):
        logits = np.asarray(model.predict_on_batch(window))[0, -1]
        drawn[place] = _draw(logits, temperature, rng)
        window = np.append(window[:, 1:], drawn[place : place + 1])[None, :]
    return drawn


def _draw(
    logits: np.ndarray, temperature: float, rng: np.random.Generator
) -> int:
    scaled = logits.astype("float64") / temperature
    weights = np.exp(scaled - scaled.max())
    return int(rng.choice(len(weights), p=weights / weights.sum()))
