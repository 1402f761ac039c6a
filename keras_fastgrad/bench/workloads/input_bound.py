"""A workload whose step waits for its input: JPEG decoding."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Workload,
    classification,
    generator,
)

_SIDE = 96
_FILE_SIDE = 160
_CLASSES = 10
_BATCH = 32
PIPELINES = ("naive", "tuned", "none")


def input_bound(pipeline: str = "naive") -> Workload:
    """Decodes, resizes and flips images for a small convolution net.

    Args:
        pipeline: `"naive"`: each part after the other. `"tuned"`: in
            parallel, decoded once, fetched ahead. `"none"`: one batch that
            costs nothing, which leaves the computation alone.
    """
    name = "input_bound"
    return Workload(
        name=name if pipeline == "naive" else f"{name}.{pipeline}",
        what="JPEG decoding, resize 96x96, flip; small convolution net, "
        f"batch {_BATCH}, Adam"
        + ("" if pipeline == "naive" else f"; pipeline: {pipeline}"),
        batch_size=_BATCH,
        batches=40,
        steps=80,
        build_model=_build,
        make_data=lambda samples: _dataset(samples, pipeline),
        compile_arguments=classification,
    )


def _build(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.sequential(
        [
            kit.keras.Input((_SIDE, _SIDE, 3)),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(_CLASSES, dtype="float32"),
        ]
    )


def _dataset(samples: int, pipeline: str) -> tf.data.Dataset:
    files, labels = _files(samples)
    numbers = np.arange(samples, dtype="int64")
    raw = tf.data.Dataset.from_tensor_slices((files, labels, numbers))
    if pipeline == "tuned":
        return (
            raw.map(_decode, num_parallel_calls=tf.data.AUTOTUNE)
            .cache()
            .map(_flip, num_parallel_calls=tf.data.AUTOTUNE)
            .batch(_BATCH, drop_remainder=True)
            .prefetch(tf.data.AUTOTUNE)
        )
    naive = raw.map(_decode).map(_flip).batch(_BATCH, drop_remainder=True)
    if pipeline == "naive":
        return naive
    batch = next(iter(naive))
    return tf.data.Dataset.from_tensors(batch).repeat(samples // _BATCH)


def _files(samples: int) -> tuple[list[bytes], np.ndarray]:
    # 64 files serve all samples, so that making the data takes no minute.
    draw = generator(1)
    colours = generator().integers(60, 190, (_CLASSES, 1, 1, 3))
    labels = draw.integers(0, _CLASSES, 64)
    shape = (64, _FILE_SIDE, _FILE_SIDE, 3)
    pixels = colours[labels] + draw.integers(-60, 60, shape)
    files = [
        tf.io.encode_jpeg(image.astype("uint8")).numpy() for image in pixels
    ]
    chosen = draw.integers(0, 64, samples)
    return [files[at] for at in chosen], labels[chosen].astype("int32")


def _decode(file: Any, label: Any, number: Any) -> tuple[Any, Any, Any]:
    image = tf.io.decode_jpeg(file, channels=3)
    return tf.image.resize(image, (_SIDE, _SIDE)), label, number


def _flip(image: Any, label: Any, number: Any) -> tuple[Any, Any]:
    # The number is the seed: every variant trains on the same images.
    seed = tf.stack([number, tf.zeros_like(number)])
    image = tf.image.stateless_random_flip_left_right(image, seed)
    return image / 255.0, label
