"""What a workload is, and where its learnable data comes from."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_fastgrad.bench.kits import Kit

SEED = 20_260


class Data(NamedTuple):
    """Inputs and targets: arrays, or lists or dicts of arrays."""

    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Scale:
    """The one dimension along which a workload can grow.

    Args:
        dimension: What grows, in words.
        sizes: The sizes to measure, smallest first.
        resized: Gives the workload at a size.
    """

    dimension: str
    sizes: tuple[int, ...]
    resized: Callable[[int], "Workload"]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training job that every variant runs alike.

    Args:
        name: Its name on the command line.
        what: One line for people.
        batch_size: Samples a step.
        batches: Distinct batches; an epoch has no more than these.
        steps: Training steps that are timed unless asked otherwise.
        build_model: Builds the model from a kit's constructors.
        make_data: Makes that many samples from the fixed seed: `Data`, or a
            batched `tf.data.Dataset`.
        compile_arguments: What `compile` is given, made with a kit.
        is_short: Whether a step takes so little time that Python between the
            steps counts.
        embedding_rows: Rows of its embedding, whose gradient comes as
            `IndexedSlices`; `None` without one.
        scale: How it grows, where it can.
    """

    name: str
    what: str
    batch_size: int
    batches: int
    steps: int
    build_model: Callable[[Kit], Any]
    make_data: Callable[[int], Any]
    compile_arguments: Callable[[Kit], dict[str, Any]]
    is_short: bool = False
    embedding_rows: int | None = None
    scale: Scale | None = None

    @property
    def has_embedding(self) -> bool:
        """Whether a gradient may be sparse."""
        return self.embedding_rows is not None


def generator(offset: int = 0) -> np.random.Generator:
    """A random generator from the fixed seed."""
    return np.random.default_rng(SEED + offset)


def labelled(
    samples: int,
    shape: tuple[int, ...],
    classes: int,
    strength: float,
    template_shape: tuple[int, ...] | None = None,
) -> Data:
    """Noise with a pattern for each class in it, and the classes.

    One label in ten is drawn at random, so that the loss has a floor well
    above zero and two right trainings end at nearly the same loss. Labels
    that nothing can learn would not do: a difference of one rounding doubles
    every few steps on them.

    Args:
        samples: How many.
        shape: Of one sample.
        classes: Number of classes.
        strength: Of the pattern against noise of deviation 1.
        template_shape: Of the pattern, to be broadcast to `shape`. Defaults
            to `shape`.

    Returns:
        `x` of `[samples, *shape]` in float32, `y` of `[samples]` in int32.
    """
    templates = generator().standard_normal(
        (classes, *(template_shape or shape)), dtype=np.float32
    )
    draw = generator(1)
    labels = draw.integers(0, classes, samples)
    x = draw.standard_normal((samples, *shape), dtype=np.float32)
    x += strength * templates[labels]
    other = draw.integers(0, classes, samples)
    y = np.where(draw.random(samples) < 0.1, other, labels)
    return Data(x, y.astype("int32"))


def classification(kit: Kit, **more: Any) -> dict[str, Any]:
    """Adam and cross entropy from logits over integer classes."""
    loss = kit.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return {"optimizer": "adam", "loss": loss, **more}
