"""Workloads on images."""

from typing import Any

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Workload,
    classification,
    labelled,
)

PATCH = 8
_SIDE = 64
PLACES = (_SIDE // PATCH) ** 2
WIDTH = 192
VIT_HEADS = 3


def cnn() -> Workload:
    """Three convolutions on small images."""
    return Workload(
        name="cnn",
        what="Conv 32, 64, pool, 128, global pool, Dense 10; 64x32x32x3; Adam",
        batch_size=64,
        batches=30,
        steps=60,
        build_model=_build_cnn,
        make_data=lambda samples: labelled(
            samples, (32, 32, 3), 10, 0.3, (1, 1, 3)
        ),
        compile_arguments=classification,
    )


def resnet50() -> Workload:
    """The network of `keras.applications`, with batch normalization."""
    return Workload(
        name="resnet50",
        what="keras.applications.ResNet50, 128x128, batch 8, 100 classes, Adam",
        batch_size=8,
        batches=20,
        steps=12,
        build_model=_build_resnet50,
        make_data=lambda samples: labelled(
            samples, (128, 128, 3), 100, 0.5, (1, 1, 3)
        ),
        compile_arguments=classification,
    )


def vit() -> Workload:
    """A vision transformer of depth 6."""
    return Workload(
        name="vit",
        what="patches 8 on 64x64, d 192, depth 6, 3 heads, batch 32, AdamW",
        batch_size=32,
        batches=20,
        steps=20,
        build_model=_build_vit,
        make_data=lambda samples: labelled(
            samples, (_SIDE, _SIDE, 3), 100, 0.5, (1, 1, 3)
        ),
        compile_arguments=lambda kit: (
            classification(kit)
            | {"optimizer": kit.keras.optimizers.AdamW(1e-3)}
        ),
    )


def _build_cnn(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.sequential(
        [
            kit.keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(128, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, dtype="float32"),
        ]
    )


def _build_resnet50(kit: Kit) -> Any:
    return kit.adopt(
        kit.keras.applications.ResNet50(
            weights=None,
            input_shape=(128, 128, 3),
            classes=100,
            classifier_activation=None,
        )
    )


def _build_vit(kit: Kit) -> Any:
    layers = kit.keras.layers
    images = kit.keras.Input((_SIDE, _SIDE, 3))
    hidden = layers.Conv2D(WIDTH, PATCH, strides=PATCH)(images)
    hidden = layers.Reshape((PLACES, WIDTH))(hidden)
    hidden = _position_layer(kit)(hidden)
    for _ in range(6):
        normal = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.MultiHeadAttention(
            VIT_HEADS, WIDTH // VIT_HEADS
        )(normal, normal)
        normal = layers.LayerNormalization()(hidden)
        inner = layers.Dense(4 * WIDTH, activation="gelu")(normal)
        hidden = hidden + layers.Dense(WIDTH)(inner)
    pooled = layers.GlobalAveragePooling1D()(hidden)
    return kit.model(images, layers.Dense(100, dtype="float32")(pooled))


def _position_layer(kit: Kit) -> Any:
    class Positions(kit.keras.layers.Layer):  # type: ignore[name-defined]
        """Adds a learned vector for each place."""

        def build(self, input_shape: Any) -> None:
            """Makes the vectors."""
            self.positions = self.add_weight(
                shape=(PLACES, WIDTH),
                initializer="random_normal",
                name="positions",
            )
            self.built = True

        def call(self, inputs: Any) -> Any:
            """Adds them; `inputs` is `[batch, places, width]`."""
            return inputs + self.positions

        def compute_output_shape(self, input_shape: Any) -> Any:
            """As the input."""
            return input_shape

    return Positions()
