"""Tells a fast training from one that is merely wrong."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

EXACT_TOLERANCE = 1e-3
HALF_TOLERANCE = 2e-2

_LARGE = 2**20
_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Reference:
    """Stock Keras's numbers for one workload.

    Args:
        steps: Training steps in all, so that nobody compares unlike runs.
        loss: Mean loss of the last epoch.
        weights: The weights after the warm-up, large ones as samples.
    """

    steps: int
    loss: float
    weights: list[np.ndarray]


def tolerance_of(setting: str) -> float:
    """How far a final loss may lie from stock Keras's, relative to it.

    Args:
        setting: A strategy or torch setting in words.
    """
    halves = ("bfloat16", "float16")
    return (
        HALF_TOLERANCE
        if any(h in setting for h in halves)
        else (EXACT_TOLERANCE)
    )


def verdict(loss: float, reference_loss: float | None, tolerance: float) -> str:
    """Judges a final loss.

    Args:
        loss: Of the variant.
        reference_loss: Of stock Keras after the same steps from the same
            weights, or `None` where there is none to compare with.
        tolerance: Largest relative difference that is right.

    Returns:
        `"right"`, `"wrong"` or `"unchecked"`. A loss that is not finite is
        always wrong.
    """
    if not math.isfinite(loss):
        return "wrong"
    if reference_loss is None:
        return "unchecked"
    gap = abs(loss - reference_loss)
    return "right" if gap <= tolerance * abs(reference_loss) else "wrong"


def largest_difference(
    weights: Sequence[np.ndarray], reference: Sequence[np.ndarray]
) -> float:
    """The largest absolute difference of two lists of weights.

    Returns:
        The difference; infinity where a weight is not finite.

    Raises:
        ValueError: If the lists differ in length or shapes.
    """
    shapes = [w.shape for w in weights], [r.shape for r in reference]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "Weights can be compared with a reference of the same shapes. "
            f"Received: {shapes[0]} against {shapes[1]}. Remove the old "
            "reference file and run the bench again."
        )
    gaps = [
        float(np.max(np.abs(w.astype("float64") - r)))
        for w, r in zip(weights, reference)
        if w.size
    ]
    largest = max(gaps, default=0.0)
    return largest if all(map(math.isfinite, gaps)) else math.inf


def sampled(variable: Any) -> np.ndarray:
    """The numbers of a Keras variable, or of some rows of a large table.

    A large table gives its first 4,096 rows, which Zipf's law names most,
    and 4,096 spread over the rest. The rows are read one by one, since
    reading the table would copy it and show up as peak memory.
    """
    shape = tuple(variable.shape)
    if len(shape) != 2 or shape[0] < 4 * _ROWS or math.prod(shape) < _LARGE:
        return np.asarray(variable)
    rows = np.concatenate(
        [np.arange(_ROWS), np.linspace(_ROWS, shape[0] - 1, _ROWS)]
    ).astype("int64")
    resource = getattr(variable, "value", variable)
    if callable(resource) or not hasattr(resource, "sparse_read"):
        resource = variable
    return resource.sparse_read(rows).numpy()


def save(path: Path, reference: Reference) -> None:
    """Writes a reference to an `.npz` file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        f"w{at}": weight for at, weight in enumerate(reference.weights)
    }
    np.savez(path, steps=reference.steps, loss=reference.loss, **arrays)


def load(path: Path) -> Reference:
    """Reads a reference that `save` wrote."""
    with np.load(path) as stored:
        weights = [stored[f"w{at}"] for at in range(len(stored.files) - 2)]
        return Reference(int(stored["steps"]), float(stored["loss"]), weights)
