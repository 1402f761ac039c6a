"""LSTM and GRU: three proofs, every option of the layers, and fall-backs."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, train, with_dense_gradients
from zoo import FAST, STOCK, ZOO, Kit

import keras_fastgrad as fg
from keras_fastgrad.gradients import check_gradient, gru, lstm
from keras_fastgrad.gradients import recurrent_batch as batch_module

UNITS, FEATURES = 3, 2
SHAPES = [(2, 4), (1, 5), (5, 1)]


def adam() -> Any:
    return keras.optimizers.Adam(0.01, epsilon=1e-3)


def arrays(kind: str, batch: int, steps: int, dtype: str) -> list[np.ndarray]:
    """Inputs, both kernels, bias and initial states."""
    rng = np.random.default_rng(0)
    gates = {"lstm": 4, "gru": 3, "gru_before": 3}[kind] * UNITS
    bias = (2, gates) if kind == "gru" else (gates,)
    shapes = [(batch, steps, FEATURES), (FEATURES, gates), (UNITS, gates), bias]
    shapes += [(batch, UNITS)] * (2 if kind == "lstm" else 1)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def mask_of(batch: int, steps: int) -> np.ndarray:
    mask = np.random.default_rng(1).random((batch, steps)) < 0.6
    mask[0] = False
    mask[-1] = True
    return mask


def op(kind: str, **options: Any) -> Any:
    def run(x: Any, kernel: Any, recurrent: Any, bias: Any, *initial: Any):
        if kind == "gru_before":
            options["reset_after"] = False
        fn = lstm if kind == "lstm" else gru
        return fn(x, kernel, recurrent, bias, initial_state=initial, **options)

    return run


def plain(kind: str, mask: Any = None, go_backwards: bool = False) -> Any:
    """The formulas of the layer's documentation, step by step."""

    def run(x: Any, kernel: Any, recurrent: Any, bias: Any, *initial: Any):
        states, outputs = initial, []
        order = range(x.shape[1])
        for t in reversed(order) if go_backwards else order:
            new = step(kind, x[:, t], kernel, recurrent, bias, states)
            if mask is not None:
                keep = mask[:, t][:, None]
                new = [tf.where(keep, n, o) for n, o in zip(new, states)]
            states = tuple(new)
            outputs.append(states[0])
        return tf.stack(outputs, 1), states

    return run


def step(
    kind: str, x: Any, kernel: Any, recurrent: Any, bias: Any, states: Any
) -> Any:
    h = states[0]
    if kind == "lstm":
        i, f, g, o = tf.split(x @ kernel + h @ recurrent + bias, 4, 1)
        c = tf.sigmoid(f) * states[1] + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c
    of_inputs, of_states = (bias[0], bias[1]) if kind == "gru" else (bias, 0.0)
    x_z, x_r, x_g = tf.split(x @ kernel + of_inputs, 3, 1)
    u_z, u_r, u_g = tf.split(h @ recurrent + of_states, 3, 1)
    z, r = tf.sigmoid(x_z + u_z), tf.sigmoid(x_r + u_r)
    if kind == "gru":
        g = tf.tanh(x_g + r * u_g)
    else:
        g = tf.tanh(x_g + (r * h) @ recurrent[:, 2 * UNITS :])
    return [z * h + (1 - z) * g]


KINDS = ["lstm", "gru", "gru_before"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_finite_differences_and_the_plain_formula(kind, shape, masked):
    mask = mask_of(*shape) if masked else None
    backwards = shape == (2, 4)
    check_gradient(
        op(kind, mask=mask, go_backwards=backwards),
        plain(kind, mask, backwards),
        arrays(kind, *shape, "float32"),
        directions=2,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_term_would_be_found(kind):
    def without_carry(*inputs: Any) -> Any:
        outputs, states = op(kind)(*inputs)
        return outputs, tuple(map(tf.stop_gradient, states))

    report = check_gradient(
        without_carry,
        inputs=arrays(kind, 2, 3, "float32"),
        directions=1,
        raise_on_error=False,
    )
    assert not report.ok


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_output_alone(kind):
    inputs = arrays(kind, 2, 4, "float32")
    reference = plain(kind)
    check_gradient(
        op(kind, return_sequences=False),
        lambda *x: (reference(*x)[0][:, -1], reference(*x)[1]),
        inputs,
        directions=1,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_batch_and_lengths_that_vary(kind, monkeypatch):
    monkeypatch.setattr(batch_module, "_LEAST_WORK", 2 * UNITS)
    monkeypatch.setattr(batch_module.os, "cpu_count", lambda: 3)
    signature = [tf.TensorSpec((None, None, FEATURES))]
    run = op(kind)
    _, *weights = arrays(kind, 1, 1, "float32")
    weights = weights[:3]

    def zeros(x: tf.Tensor) -> list[tf.Tensor]:
        number = 2 if kind == "lstm" else 1
        return [tf.zeros((tf.shape(x)[0], UNITS))] * number

    graph = tf.function(
        lambda x: run(x, *weights, *zeros(x)),
        input_signature=signature,
        autograph=False,
    )
    for shape in [(7, 5), (6, 5), (2, 9), (1, 1), (3, 33)]:
        x = tf.constant(arrays(kind, *shape, "float32")[0])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            ours = tf.reduce_sum(graph(x)[0] ** 2)
            theirs = tf.reduce_sum(plain(kind)(x, *weights, *zeros(x))[0] ** 2)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        np.testing.assert_allclose(
            tape.gradient(ours, x),
            tape.gradient(theirs, x),
            rtol=1e-4,
            atol=1e-6,
        )


def test_a_second_derivative_is_a_clear_error():
    inputs = [tf.constant(a) for a in arrays("lstm", 2, 3, "float32")]
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        outer.watch(inputs)
        inner.watch(inputs)
        loss = tf.reduce_sum(op("lstm")(*inputs)[0] ** 2)
        first = inner.gradient(loss, inputs[0])
    with pytest.raises(NotImplementedError, match="gradients='keras'"):
        outer.gradient(first, inputs[0])


def sequences() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(7).standard_normal((46, 6, 5)).astype("float32")
    return x, (x[:, :, 0].sum(1) > 0).astype("int32")


def one_layer(layer: Any, masked: bool = False) -> Any:
    def build(kit: Kit) -> keras.Model:
        x = inputs = keras.Input((6, 5))
        if masked:
            # Where all of a step's features are above a bound.
            x = layers.Lambda(
                lambda x: keras.ops.where(x[..., :1] > 0.5, 0.0, x)
            )(x)
            x = layers.Masking()(x)
        h = layer()(x)
        if len(h.shape) == 3:
            h = layers.GlobalAveragePooling1D()(h)
        return kit.functional(inputs, layers.Dense(2)(h))

    return build


LAYERS: dict[str, Any] = {
    "lstm": lambda: layers.LSTM(4),
    "gru": lambda: layers.GRU(4),
    "sequences": lambda: layers.LSTM(4, return_sequences=True),
    "backwards": lambda: layers.GRU(
        4, go_backwards=True, return_sequences=True
    ),
    "no bias": lambda: layers.LSTM(4, use_bias=False),
    "gru no bias": lambda: layers.GRU(4, use_bias=False),
    "reset before": lambda: layers.GRU(4, reset_after=False),
    "reset before, no bias": lambda: layers.GRU(
        4, reset_after=False, use_bias=False
    ),
    "dropout": lambda: layers.LSTM(4, dropout=0.4),
    "gru dropout": lambda: layers.GRU(4, dropout=0.4, return_sequences=True),
    "unrolled": lambda: layers.LSTM(4, unroll=True),
    "both ways": lambda: layers.Bidirectional(
        layers.LSTM(4, return_sequences=True)
    ),
    "regularized": lambda: layers.GRU(4, kernel_regularizer="l2"),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_trains_as_stock(name, masked):
    build = one_layer(LAYERS[name], masked)
    stock, ours = (
        train(
            lambda k=kit: build(k), sequences(), adam(), **ZOO["mlp"].compile()
        )
        for kit in (STOCK, FAST)
    )
    assert_same_training(stock, ours)
    text = " ".join(ours.fastgrad.explain().split())
    assert "(lstm)" in text or "(gru)" in text


def stateful(kit: Kit) -> keras.Model:
    inputs = keras.Input(batch_shape=(2, 6, 5))
    h, *states = layers.LSTM(
        4, stateful=True, return_state=True, return_sequences=True
    )(inputs)
    h = layers.GRU(4)(h, initial_state=states[1])
    return kit.functional(
        inputs, layers.Dense(2)(layers.Concatenate()([h, *states]))
    )


def test_stateful_layers_and_states_handed_on():
    stock, ours = (
        train(
            lambda k=kit: stateful(k),
            sequences(),
            adam(),
            batch_size=2,
            **ZOO["mlp"].compile(),
        )
        for kit in (STOCK, FAST)
    )
    assert_same_training(stock, ours)


def deep(kit: Kit) -> keras.Model:
    """Embedding, mask and two layers over texts of different lengths."""
    tokens = keras.Input((None,), dtype="int32")
    h = layers.Embedding(20, 6, mask_zero=True)(tokens)
    h = layers.LSTM(5, return_sequences=True)(h)
    h = layers.Bidirectional(layers.GRU(4))(h)
    return kit.functional(tokens, layers.Dense(2)(h))


def test_case_22_ten_samples_of_varying_length_under_xla_and_without():
    rng = np.random.default_rng(0)

    def batches() -> Any:
        for length, size in ((5, 4), (9, 4), (3, 2)):
            x = rng.integers(0, 20, (size, length)).astype("int32")
            x[:, 0] = 1
            yield x, x[:, 1] % 2

    data = [*batches(), *batches()]
    trained = []
    for kit, arguments in (
        (STOCK, {"jit_compile": False}),
        (FAST, {"jit_compile": False}),
        (FAST, {"fastgrad": fg.Strategy(jit_compile=True)}),
    ):
        keras.utils.set_random_seed(3)
        model = deep(kit)
        model.compile(
            with_dense_gradients(adam()), **ZOO["mlp"].compile(), **arguments
        )
        for x, y in data:
            model.train_on_batch(x, y)
        assert model.optimizer.iterations == 6
        trained.append(model.get_weights())
    for others in trained[1:]:
        for one, other in zip(trained[0], others):
            np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-5)


def test_case_21_convolution_reshape_lstm_under_xla():
    def build(kit: Kit) -> keras.Model:
        return kit.sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(4, 3),
                layers.Reshape((6, 24)),
                layers.LSTM(5),
                layers.Dense(2),
            ]
        )

    data = ZOO["cnn"].data()
    stock, ours = (
        train(
            lambda k=kit: build(k),
            data,
            adam(),
            jit_compile=True,
            **ZOO["mlp"].compile(),
        )
        for kit in (STOCK, FAST)
    )
    for one, other in zip(stock.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision_stays_near(precision):
    build = one_layer(LAYERS["both ways"])
    losses = []
    for strategy in (None, fg.Strategy(precision=precision)):
        model = train(
            lambda: build(FAST),
            sequences(),
            adam(),
            fastgrad=strategy or True,
            **ZOO["mlp"].compile(),
        )
        losses.append(model.history.history["loss"][-1])
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)


def test_run_eagerly():
    build = one_layer(LAYERS["lstm"])
    stock, ours = (
        train(
            lambda k=kit: build(k),
            tuple(part[:16] for part in sequences()),
            adam(),
            epochs=1,
            run_eagerly=True,
            **ZOO["mlp"].compile(),
        )
        for kit in (STOCK, FAST)
    )
    assert_same_training(stock, ours)


class Doubled(layers.LSTM):
    """A layer with a `call` of its own."""

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
    ) -> Any:
        return 2.0 * super().call(sequences, initial_state, mask, training)


REFUSED = {
    "recurrent dropout": (
        lambda: layers.LSTM(4, recurrent_dropout=0.3),
        "recurrent dropout draws a mask for each gate",
    ),
    "activation": (
        lambda: layers.GRU(4, activation="relu"),
        "its activations are not tanh and sigmoid",
    ),
    "own call": (lambda: Doubled(4), "Doubled has a `call`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_keras_gradient_says_why_and_trains_as_stock(name):
    layer, why = REFUSED[name]
    build = one_layer(layer)
    stock, ours = (
        train(
            lambda k=kit: build(k), sequences(), adam(), **ZOO["mlp"].compile()
        )
        for kit in (STOCK, FAST)
    )
    assert_same_training(stock, ours)
    assert why in " ".join(ours.fastgrad.explain().split())


def test_ops_are_chosen_by_name():
    model = stateful(FAST)
    model.compile(
        "adam", "mse", fastgrad=fg.Strategy(gradients=frozenset({"gru"}))
    )
    text = model.fastgrad.explain()
    assert "(gru)" in text and "(lstm)" not in text
    model.fastgrad.use(fg.Strategy(gradients="keras"))
    assert "Layers with a fast gradient: none" in model.fastgrad.explain()
    strategy = fg.Strategy.parse("gradients=gru+lstm")
    assert strategy.gradients == frozenset({"gru", "lstm"})
    assert fg.Strategy.parse(str(strategy)) == strategy


def test_a_saved_model_holds_no_trace(tmp_path):
    model = deep(FAST)
    model.compile(adam(), **ZOO["mlp"].compile())
    x = np.random.default_rng(0).integers(1, 20, (6, 7)).astype("int32")
    model.fit(x, x[:, 0] % 2, verbose=0)
    for layer in model.layers:
        assert "inner_loop" not in vars(layer)
    model.save(tmp_path / "model.keras")
    plain_model = keras.Model(model.inputs, model.outputs)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = plain_model.predict(x, verbose=0)
    np.testing.assert_array_equal(model.predict(x, verbose=0), expected)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), expected)
