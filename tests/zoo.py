"""Small models of every kind, built alike on stock Keras and on ours.

A zoo member is a function of a `Kit`, the classes to build with, that returns
a model; beside it stand its data and its compile arguments. Targets come from
the inputs by a fixed rule and activations are smooth, so that two trainings
that agree stay together.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

import keras_fastgrad as fg


@dataclasses.dataclass(frozen=True)
class Kit:
    """The classes to build a model with."""

    functional: Callable[..., keras.Model]
    sequential: Callable[..., keras.Model]
    base: type


STOCK = Kit(keras.Model, keras.Sequential, keras.Model)
FAST = Kit(fg.FastGradModel, fg.FastGradSequential, fg.FastGradModel)


@dataclasses.dataclass(frozen=True)
class Member:
    """One model of the zoo with what is needed to train it."""

    build: Callable[[Kit], keras.Model]
    data: Callable[[], tuple[Any, ...]]
    compile: Callable[[], dict[str, Any]]
    draws: bool = False


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _vectors(samples: int = 46, width: int = 12) -> tuple[Any, ...]:
    x = _rng().standard_normal((samples, width)).astype("float32")
    return x, (x[:, :3].sum(axis=1) > 0).astype("int32")


def mlp(kit: Kit) -> keras.Model:
    return kit.sequential(
        [
            keras.Input((12,)),
            layers.Dense(16, activation="tanh"),
            layers.Dense(2),
        ]
    )


def cnn(kit: Kit) -> keras.Model:
    return kit.sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(6, 3, activation="gelu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )


def _images() -> tuple[Any, ...]:
    x = _rng().standard_normal((46, 8, 8, 3)).astype("float32")
    return x, (x.mean(axis=(1, 2, 3)) > 0).astype("int32")


def two_inputs(kit: Kit) -> keras.Model:
    left = keras.Input((6,), name="left")
    right = keras.Input((4,), name="right")
    both = layers.Concatenate()(
        [layers.Dense(5, "tanh")(left), layers.Dense(5, "tanh")(right)]
    )
    return kit.functional(
        {"left": left, "right": right},
        {
            "class": layers.Dense(2, name="a")(both),
            "value": layers.Dense(1, name="b")(both),
        },
    )


def _two_inputs() -> tuple[Any, ...]:
    x = {
        "left": _rng().standard_normal((46, 6)).astype("float32"),
        "right": _rng().standard_normal((46, 4)).astype("float32"),
    }
    value = x["left"][:, :1] - x["right"][:, :1]
    return x, {"class": (value[:, 0] > 0).astype("int32"), "value": value}


def text(kit: Kit) -> keras.Model:
    return kit.sequential(
        [
            keras.Input((9,), dtype="int32"),
            layers.Embedding(20, 8, mask_zero=True),
            layers.LSTM(7),
            layers.Dense(2),
        ]
    )


def _tokens() -> tuple[Any, ...]:
    x = _rng().integers(0, 20, (46, 9)).astype("int32")
    return x, (x.sum(axis=1) > 85).astype("int32")


def transformer(kit: Kit) -> keras.Model:
    tokens = keras.Input((9,), dtype="int32")
    h = layers.Embedding(20, 8)(tokens)
    attended = layers.MultiHeadAttention(2, 4, dropout=0.1)(h, h)
    h = layers.LayerNormalization()(h + attended)
    h = layers.LayerNormalization()(h + layers.Dense(8, "gelu")(h))
    outputs = layers.Dense(2)(layers.GlobalAveragePooling1D()(h))
    return kit.functional(tokens, outputs)


def recommender(kit: Kit) -> keras.Model:
    history = keras.Input((5,), dtype="int32", name="history")
    item = keras.Input((1,), dtype="int32", name="item")
    table = layers.Embedding(30, 6)
    user = layers.GlobalAveragePooling1D()(table(history))
    wanted = layers.Flatten()(table(item))
    h = layers.Dense(8, "tanh")(layers.Concatenate()([user, wanted]))
    return kit.functional([history, item], layers.Dense(2)(h))


def _visits() -> tuple[Any, ...]:
    # Small ids come often, so ids repeat in every batch.
    history = _rng().zipf(1.5, (46, 5)).clip(1, 29).astype("int32")
    item = _rng().zipf(1.5, (46, 1)).clip(1, 29).astype("int32")
    return [history, item], (item[:, 0] > history[:, 0]).astype("int32")


def subclass(kit: Kit) -> keras.Model:
    class Residual(kit.base):
        def __init__(self) -> None:
            super().__init__()
            self.first = layers.Dense(12, activation="tanh")
            self.drop = layers.Dropout(0.2)
            self.last = layers.Dense(2)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.last(x + self.drop(self.first(x), training=training))

    return Residual()


def nested(kit: Kit) -> keras.Model:
    inner = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(10, "tanh"),
            layers.BatchNormalization(),
            layers.Dense(10, "tanh"),
        ]
    )
    inner.layers[0].trainable = False
    inner.layers[1].trainable = False
    inputs = keras.Input((12,))
    return kit.functional(inputs, layers.Dense(2)(inner(inputs)))


def _classifier() -> dict[str, Any]:
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
    }


def _by_name() -> dict[str, Any]:
    return {
        "loss": {"class": _classifier()["loss"], "value": "mse"},
        "loss_weights": {"class": 1.0, "value": 0.5},
        "metrics": {"class": "accuracy", "value": "mae"},
    }


ZOO: dict[str, Member] = {
    "mlp": Member(mlp, _vectors, _classifier),
    "cnn": Member(cnn, _images, _classifier, draws=True),
    "two_inputs": Member(two_inputs, _two_inputs, _by_name),
    "text": Member(text, _tokens, _classifier),
    "transformer": Member(transformer, _tokens, _classifier, draws=True),
    "recommender": Member(recommender, _visits, _classifier),
    "subclass": Member(subclass, _vectors, _classifier, draws=True),
    "nested": Member(nested, _vectors, _classifier),
}
