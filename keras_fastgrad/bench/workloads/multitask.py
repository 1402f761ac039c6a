"""Workloads of several tasks over a shared trunk."""

from typing import Any

import numpy as np
import tensorflow as tf

import keras_fastgrad as fg
from keras_fastgrad.bench.kits import Kit
from keras_fastgrad.bench.workloads.workload import (
    Data,
    Workload,
    classification,
    generator,
)
from keras_fastgrad.gradients.task_weights import pcgrad_weights

_TASKS = 4
_FEATURES = 256


def multitask() -> Workload:
    """A shared trunk of six Dense 512 under four heads."""
    return _workload("multitask", "the losses added up", _build)


def multitask_pcgrad() -> Workload:
    """The same with PCGrad, for which others go backwards once a task."""
    what = "PCGrad: elsewhere one backward pass a task"
    return _workload("multitask_pcgrad", what, _build_pcgrad)


def _workload(name: str, what: str, build: Any) -> Workload:
    return Workload(
        name=name,
        what="shared trunk of six Dense 512, four heads, batch 64, Adam, "
        + what,
        batch_size=64,
        batches=96,
        steps=192,
        build_model=build,
        make_data=_data,
        compile_arguments=_compile_arguments,
        is_short=True,
    )


def _trunk(kit: Kit) -> tuple[Any, Any]:
    inputs = kit.keras.Input((_FEATURES,))
    hidden = inputs
    for _ in range(6):
        hidden = kit.keras.layers.Dense(512, activation="relu")(hidden)
    return inputs, hidden


def _heads(kit: Kit) -> list[Any]:
    return [
        kit.keras.layers.Dense(10, dtype="float32", name=f"task_{task}")
        for task in range(_TASKS)
    ]


def _build(kit: Kit) -> Any:
    inputs, hidden = _trunk(kit)
    return kit.model(inputs, [head(hidden) for head in _heads(kit)])


def _build_pcgrad(kit: Kit) -> Any:
    inputs, hidden = _trunk(kit)
    heads = _heads(kit)
    if kit.model is fg.FastGradModel:
        parts = fg.layers.Multitask(_TASKS, "pcgrad")(hidden)
        outputs = [head(part) for head, part in zip(heads, parts)]
        return kit.model(inputs, outputs)
    outputs = [head(hidden) for head in heads]
    trunk = kit.keras.Model(inputs, hidden)
    return _backward_per_task(kit, trunk, heads)(inputs, outputs)


def _backward_per_task(kit: Kit, trunk: Any, heads: list[Any]) -> type:
    """PCGrad as it is commonly written, with a tape that lasts."""
    loss_of = kit.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    total = kit.keras.metrics.Mean(name="loss")

    base: Any = kit.keras.Model

    class BackwardPerTask(base):
        @property
        def metrics(self) -> list[Any]:
            return [total]

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape(persistent=True) as tape:
                hidden = trunk(x, training=True)
                losses = [
                    loss_of(own, head(hidden)) for head, own in zip(heads, y)
                ]
            shared = trunk.trainable_variables
            rows = tf.stack(
                [
                    tf.reshape(tape.gradient(loss, hidden), [-1])
                    for loss in losses
                ]
            )
            weights = tf.unstack(
                pcgrad_weights(tf.matmul(rows, rows, transpose_b=True))
            )
            each = [tape.gradient(loss, shared) for loss in losses]
            pairs = [
                (tf.add_n([w * g for w, g in zip(weights, parts)]), variable)
                for variable, *parts in zip(shared, *each)
            ]
            for head, loss in zip(heads, losses):
                own = head.trainable_variables
                pairs += zip(tape.gradient(loss, own), own)
            self.optimizer.apply_gradients(pairs)
            total.update_state(tf.add_n(losses))
            return {"loss": total.result()}

    return BackwardPerTask


def _compile_arguments(kit: Kit) -> dict[str, Any]:
    arguments = classification(kit)
    return arguments | {"loss": [arguments["loss"]] * _TASKS}


def _data(samples: int) -> Data:
    # Each task reads another linear view of the same features.
    draw = generator(1)
    x = draw.standard_normal((samples, _FEATURES), dtype=np.float32)
    teachers = generator().standard_normal((_TASKS, _FEATURES, 10))
    y = [
        np.argmax(
            x @ teacher / 8 + draw.gumbel(size=(samples, 10)), axis=1
        ).astype("int32")
        for teacher in teachers
    ]
    return Data(x, y)
