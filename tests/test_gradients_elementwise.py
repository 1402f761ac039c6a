"""Norms and activations: three proofs, half precision, layers, fall-backs."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, train
from zoo import FAST, STOCK, ZOO, Kit

import keras_fastgrad as fg
from keras_fastgrad.gradients import (
    batch_norm,
    check_gradient,
    compiled,
    gelu,
    group_norm,
    layer_norm,
    mish,
    rms_norm,
    silu,
)


def adam() -> Any:
    return keras.optimizers.Adam(0.01, epsilon=1e-3)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def on_both_ways(request, monkeypatch):
    """Small tensors go through the compiled passes too, or none does."""
    least = 0 if request.param else 1 << 60
    monkeypatch.setattr(compiled, "_SMALL", least)


def plain_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + tf.math.erf(x / np.sqrt(2)))


ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "gelu": (gelu, plain_gelu),
    "gelu_tanh": (
        lambda x: gelu(x, approximate=True),
        lambda x: tf.nn.gelu(x, approximate=True),
    ),
    "silu": (silu, lambda x: x * tf.sigmoid(x)),
    "mish": (mish, lambda x: x * tf.tanh(tf.math.softplus(x))),
}


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("shape", [(5,), (1, 1), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_proved(name, shape):
    op, reference = ACTIVATIONS[name]
    check_gradient(op, reference, [3 * normal(*shape)], directions=2)


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_large_inputs_are_finite_and_right(name, dtype):
    op, reference = ACTIVATIONS[name]
    far = [-1e4, -200.0, -40.0, -9.0, -0.0, 9.0, 21.0, 40.0, 60.0, 1e4]
    x = tf.constant(far, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = op(x)
    assert y.dtype == x.dtype
    wide = tf.cast(x, "float64")
    with tf.GradientTape() as plain_tape:
        plain_tape.watch(wide)
        expected = reference(wide)
    bound = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6}
    for got, want in (
        (y, expected),
        (tape.gradient(y, x), plain_tape.gradient(expected, wide)),
    ):
        np.testing.assert_allclose(
            tf.cast(got, "float64"),
            want,
            rtol=bound.get(dtype, 1e-12),
            atol=bound.get(dtype, 1e-12),
        )


def test_an_empty_batch_of_activations():
    x = tf.zeros((0, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gelu(x)
    assert y.shape == tape.gradient(y, x).shape == (0, 4)


def moments(x: Any, axes: Any, is_centred: bool, epsilon: float) -> Any:
    mean = tf.reduce_mean(x, axes, keepdims=True) if is_centred else 0.0
    variance = tf.reduce_mean((x - mean) ** 2, axes, keepdims=True)
    return (x - mean) / tf.sqrt(variance + epsilon)


def plain_groups(groups: int) -> Callable:
    def run(x: Any, scale: Any, offset: Any) -> Any:
        shape = x.shape
        parts = tf.reshape(x, [shape[0], -1, groups, shape[-1] // groups or 1])
        return tf.reshape(moments(parts, [1, 3], True, 1e-3), shape) * (
            scale
        ) + (offset)

    return run


NORMS: dict[str, tuple[Callable, Callable, tuple[int, ...], int]] = {
    "layer": (
        layer_norm,
        lambda x, s, o: moments(x, [-1], True, 1e-3) * s + o,
        (3, 2, 4),
        1,
    ),
    "layer, one sample": (
        layer_norm,
        lambda x, s, o: moments(x, [-1], True, 1e-3) * s + o,
        (1, 5),
        1,
    ),
    "layer over two axes": (
        lambda x, s, o: layer_norm(x, s, o, axes=2),
        lambda x, s, o: moments(x, [-1, -2], True, 1e-3) * s + o,
        (3, 2, 4),
        2,
    ),
    "rms": (
        lambda x, s, o: rms_norm(x, s, epsilon=1e-3) + o,
        lambda x, s, o: moments(x, [-1], False, 1e-3) * s + o,
        (3, 4),
        1,
    ),
    "groups": (
        lambda x, s, o: group_norm(x, 2, s, o),
        plain_groups(2),
        (3, 2, 2, 6),
        1,
    ),
    "a group a channel": (
        lambda x, s, o: group_norm(x, 4, s, o),
        plain_groups(4),
        (2, 5, 4),
        1,
    ),
    "one group": (
        lambda x, s, o: group_norm(x, 1, s, o),
        plain_groups(1),
        (2, 4),
        1,
    ),
}


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_proved(name):
    op, reference, shape, learned = NORMS[name]
    inputs = [normal(*shape), 1 + normal(*shape[-learned:])]
    inputs.append(normal(*shape[-learned:]))
    check_gradient(op, reference, inputs, directions=2)


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_of_half_precision_compute_in_float32(dtype):
    # The squares overflow in float16.
    x = tf.constant(300 * normal(8, 64), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer_norm(x)
        loss = tf.reduce_sum(tf.cast(y, "float32") ** 3)
    gradient = tape.gradient(loss, x)
    assert y.dtype == gradient.dtype == x.dtype
    expected = moments(tf.cast(x, "float32"), [-1], True, 1e-3)
    np.testing.assert_allclose(tf.cast(y, "float32"), expected, atol=2e-2)
    assert np.isfinite(tf.cast(gradient, "float32")).all()


def test_norms_without_scale_and_offset():
    x = normal(4, 6)
    np.testing.assert_allclose(
        layer_norm(x), moments(x, [-1], True, 1e-3), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="groups=4, channels=6"):
        group_norm(x, 4)
    unknown = tf.function(layer_norm, autograph=False)
    with pytest.raises(ValueError, match="must be known"):
        unknown.get_concrete_function(tf.TensorSpec((None, None)))


BATCHES = [(6, 3), (1, 2), (4, 3, 2), (2, 3, 3, 2), (2, 2, 1, 3, 2)]


def plain_batch_norm(x: Any, scale: Any, offset: Any) -> Any:
    axes = list(range(len(x.shape) - 1))
    mean = tf.reduce_mean(x, axes)
    variance = tf.reduce_mean((x - mean) ** 2, axes)
    return (x - mean) / tf.sqrt(variance + 1e-3) * scale + offset, (
        mean,
        variance,
    )


@pytest.mark.parametrize("shape", BATCHES, ids=str)
def test_batch_norm_equals_the_plain_formula(shape):
    # The kernel has no float64: parity with the formula is the proof.
    inputs = [tf.constant(normal(*shape))]
    inputs += [tf.constant(1 + normal(shape[-1])), tf.constant(normal(2, 3)[0])]
    inputs[2] = inputs[2][: shape[-1]]
    upstream = tf.constant(normal(*reversed(shape))) + 0.5
    upstream = tf.reshape(upstream, shape)
    results = []
    for fn in (batch_norm, plain_batch_norm):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs, *rest = tf.nest.flatten(fn(*inputs))
            loss = tf.reduce_sum(outputs * upstream)
        results.append([outputs, *rest, *tape.gradient(loss, inputs)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_batch_norm_of_half_precision(dtype):
    x = tf.constant(normal(8, 4, 4, 3), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs, mean, variance = batch_norm(x)
        loss = tf.reduce_sum(tf.cast(outputs, "float32") ** 3)
    assert outputs.dtype == tape.gradient(loss, x).dtype == x.dtype
    assert mean.dtype == variance.dtype == tf.float32
    np.testing.assert_allclose(
        tf.cast(outputs, "float32"),
        plain_batch_norm(tf.cast(x, "float32"), 1.0, 0.0)[0],
        atol=3e-2,
    )


SMOOTH = {
    "gelu": lambda: layers.Dense(6, activation="gelu"),
    "silu": lambda: layers.Activation("swish"),
    "mish": lambda: layers.Dense(6, activation="mish"),
    "layer_norm": layers.LayerNormalization,
    "rms_norm": layers.RMSNormalization,
    "group_norm": lambda: layers.GroupNormalization(3),
    "batch_norm": layers.BatchNormalization,
}
OPTIONS: dict[str, tuple[str, Callable[[], Any]]] = {
    **{name: (name, make) for name, make in SMOOTH.items()},
    "layer, no parameters": (
        "layer_norm",
        lambda: layers.LayerNormalization(center=False, scale=False),
    ),
    "layer, two axes": (
        "layer_norm",
        lambda: layers.LayerNormalization(axis=[1, 2]),
    ),
    "groups, no parameters": (
        "group_norm",
        lambda: layers.GroupNormalization(-1, center=False, scale=False),
    ),
    "batch, no parameters": (
        "batch_norm",
        lambda: layers.BatchNormalization(
            center=False, scale=False, momentum=0.7, epsilon=0.1
        ),
    ),
    "batch, regularized": (
        "batch_norm",
        lambda: layers.BatchNormalization(gamma_regularizer="l2"),
    ),
}


def around(layer: Callable[[], Any]) -> Callable[[Kit], keras.Model]:
    def build(kit: Kit) -> keras.Model:
        inputs = keras.Input((4, 6))
        # A bias before a norm has no gradient but noise.
        h = layer()(layers.Dense(6, use_bias=False)(inputs))
        h = layers.Flatten()(layers.Activation("tanh")(h))
        return kit.functional(inputs, layers.Dense(2)(h))

    return build


def samples() -> tuple[np.ndarray, np.ndarray]:
    x = normal(46, 4, 6)
    return x, (x[:, :, 0].sum(1) > 0).astype("int32")


def stock_and_ours(
    build: Callable[[Kit], Any], **arguments: Any
) -> list[keras.Model]:
    return [
        train(
            lambda k=kit: build(k),
            samples(),
            adam(),
            **ZOO["mlp"].compile(),
            **arguments,
        )
        for kit in (STOCK, FAST)
    ]


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("name", OPTIONS)
def test_a_layer_trains_as_stock(name):
    op, make = OPTIONS[name]
    stock, ours = stock_and_ours(around(make))
    assert_same_training(stock, ours)
    assert f"({op})" in ours.fastgrad.explain()


@pytest.mark.parametrize("name", SMOOTH)
def test_a_layer_trains_as_stock_under_xla(name):
    build = around(SMOOTH[name])
    stock, ours = (
        train(
            lambda k=kit: build(k),
            samples(),
            adam(),
            **ZOO["mlp"].compile(),
            **arguments,
        )
        for kit, arguments in (
            (STOCK, {}),
            (FAST, {"fastgrad": fg.Strategy(jit_compile=True)}),
        )
    )
    for one, other in zip(stock.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_run_eagerly(name):
    build = around(SMOOTH[name])
    stock, ours = stock_and_ours(build, epochs=1, run_eagerly=True)
    assert_same_training(stock, ours)


class Shifted(layers.BatchNormalization):
    """A layer with a `call` of its own."""

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return super().call(inputs + 1.0, training=training, mask=mask)


class Own(layers.LayerNormalization):
    """Another one."""

    def call(self, inputs: Any) -> Any:
        return 2.0 * super().call(inputs)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "own batch norm": (Shifted, "Shifted has a `call` of its own"),
    "own layer norm": (Own, "Own has a `call` of its own"),
    "batch axis": (
        lambda: layers.BatchNormalization(axis=1),
        "its channels are not the last axis",
    ),
    "synchronized": (
        lambda: layers.BatchNormalization(synchronized=True),
        "its statistics are synchronized",
    ),
    "masked": (
        lambda: keras.Sequential(
            [layers.Masking(0.5), layers.BatchNormalization()]
        ),
        "its inputs have a mask",
    ),
    "layer axis": (
        lambda: layers.LayerNormalization(axis=1),
        "the axes that it normalizes are not the last",
    ),
    "group axis": (
        lambda: layers.GroupNormalization(2, axis=1),
        "its channels are not the last axis",
    ),
    "cell": (
        lambda: layers.RNN(
            layers.SimpleRNNCell(5, activation="gelu"), return_sequences=True
        ),
        "a cell calls gelu on few elements",
    ),
    "float64": (
        lambda: layers.BatchNormalization(dtype="float64"),
        "its statistics are not float32",
    ),
}


@pytest.mark.filterwarnings("ignore:.*destroy the mask:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_keras_gradient_says_why_and_trains_as_stock(name):
    make, why = REFUSED[name]
    stock, ours = stock_and_ours(around(make))
    assert_same_training(stock, ours)
    assert why in " ".join(ours.fastgrad.explain().split())


def test_a_frozen_batch_norm_keeps_its_statistics():
    def frozen() -> Any:
        layer = layers.BatchNormalization()
        layer.trainable = False
        return layer

    stock, ours = stock_and_ours(around(frozen))
    assert_same_training(stock, ours)
    layer = next(x for x in ours.layers if "batch" in x.name)
    assert not layer.moving_mean.numpy().any()


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", SMOOTH)
def test_low_precision_stays_near(name, precision):
    losses = [
        train(
            lambda: around(SMOOTH[name])(FAST),
            samples(),
            adam(),
            fastgrad=strategy,
            **ZOO["mlp"].compile(),
        ).history.history["loss"][-1]
        for strategy in (True, fg.Strategy(precision=precision))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=3e-2)


def test_a_model_of_keras_applications_gets_the_ops():
    def trained(kit: Kit) -> keras.Model:
        keras.utils.set_random_seed(5)
        net = keras.applications.MobileNetV3Small(
            (32, 32, 3),
            weights=None,
            classes=4,
            minimalistic=True,
            include_preprocessing=False,
            dropout_rate=0.0,
        )
        model = fg.FastGradModel.from_model(net) if kit is FAST else net
        model.compile(
            keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy"
        )
        x = normal(8, 32, 32, 3)
        model.fit(x, np.arange(8) % 4, epochs=1, batch_size=8, verbose=0)
        return model

    stock, ours = trained(STOCK), trained(FAST)
    for one, other in zip(stock.weights, ours.weights):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)
    text = " ".join(ours.fastgrad.explain().split())
    normed = text.split(" (batch_norm)")[0].split("gradient: ")[1]
    assert len(normed.split(", ")) == sum(
        isinstance(layer, layers.BatchNormalization) for layer in ours.layers
    )
