"""Trains two models alike and compares everything that training leaves."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Largest difference that counts as float32 rounding, relative to the largest
# element; `velocity` because the kernel's 1 - beta_2 has few digits left
# (optimizers/kernels.py). A flipped sign or a lost factor is 0.1 or more.
ROUNDING = {"weights": 1e-5, "slots": 2e-5, "velocity": 3e-5, "history": 1e-5}
CEILING = 1e-4
# A weight whose gradient is zero but for rounding (the key bias of attention)
# is noise of 1e-8, its momentum of 1e-9, and both are compared as such.
FLOORS = {"weights": 1e-2, "slots": 1e-4}


def with_dense_gradients(optimizer: Any) -> Any:
    """Lets stock Keras have the gradient it would have without slices."""
    keras_apply = optimizer.apply

    def apply(gradients: Any, trainable_variables: Any = None) -> None:
        keras_apply(
            [None if g is None else tf.convert_to_tensor(g) for g in gradients],
            trainable_variables,
        )

    optimizer.apply = apply
    return optimizer


def train(
    build: Callable[[], keras.Model],
    data: tuple[Any, ...],
    optimizer: Any,
    *,
    epochs: int = 3,
    batch_size: int = 8,
    callbacks: Any = None,
    fit: dict[str, Any] | None = None,
    **compile_arguments: Any,
) -> keras.Model:
    """Builds, compiles and fits with fixed seeds; the model keeps its history.

    46 samples in batches of eight leave a tail of six in each epoch.
    """
    keras.utils.set_random_seed(11)
    model = build()
    model.compile(optimizer, **compile_arguments)
    keras.utils.set_random_seed(12)
    model.fit(
        *data,
        epochs=epochs,
        batch_size=batch_size,
        verbose=0,
        callbacks=callbacks,
        **(fit or {}),
    )
    return model


def distance(one: Any, other: Any, floor: float = 1e-12) -> float:
    """Largest difference, relative to the largest element or to `floor`."""
    one, other = np.asarray(one, "float64"), np.asarray(other, "float64")
    assert one.shape == other.shape
    if one.size == 0:
        return 0.0
    return float(np.abs(one - other).max() / max(np.abs(one).max(), floor))


def assert_same_training(
    stock: keras.Model, ours: keras.Model, exactly: bool = False
) -> None:
    """Weights, slots, iterations and history agree to float32 rounding.

    With `exactly`, to the bit.
    """
    assert max(ROUNDING.values()) <= CEILING

    def check(what: str, name: str, one: Any, other: Any) -> None:
        bound = 0.0 if exactly else ROUNDING[what]
        apart = distance(one, other, FLOORS.get(what, 1e-12))
        assert apart <= bound, f"{what} of {name}: {apart:.2e} > {bound:.0e}"

    assert len(stock.weights) == len(ours.weights)
    for one, other in zip(stock.weights, ours.weights):
        check("weights", one.path, one.numpy(), other.numpy())
    slots, our_slots = stock.optimizer.variables, ours.optimizer.variables
    assert len(slots) == len(our_slots)
    for one, other in zip(slots, our_slots):
        what = "velocity" if "velocity" in one.path else "slots"
        check(what, one.path, one.numpy(), other.numpy())
    history, our_history = stock.history.history, ours.history.history
    assert list(history) == list(our_history)
    for name in history:
        check("history", name, history[name], our_history[name])
