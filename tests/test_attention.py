"""Attention: three proofs in every mode, layers, dropout, fall-backs."""

from collections.abc import Callable
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, train, with_dense_gradients
from zoo import FAST, STOCK, ZOO, Kit

import keras_fastgrad as fg
from keras_fastgrad.gradients import (
    attention,
    attention_blocks,
    attention_segments,
    check_gradient,
    compiled,
)
from keras_fastgrad.gradients.attention_dropout import Draws


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


def booleans(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).random(shape) < 0.6


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def on_both_ways(request, monkeypatch):
    """Small tensors go through the compiled passes too, or none does."""
    least = 0 if request.param else 1 << 60
    monkeypatch.setattr(compiled, "_SMALL", least)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Blocks of few queries and short segments, so that small tests cut."""
    monkeypatch.setattr(attention_blocks, "_FEWEST", 2)
    monkeypatch.setattr(attention_segments, "_SEGMENT", 3)


def plain(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    bias: Any = None,
    *,
    is_causal: bool = False,
) -> tf.Tensor:
    """Attention by the book, a key head for each of several query heads."""
    groups = query.shape[2] // key.shape[2]
    key, value = (tf.repeat(each, groups, 2) for each in (key, value))
    scores = tf.einsum("btnh,bsnh->bnts", query, key)
    scores /= tf.sqrt(tf.cast(query.shape[-1], scores.dtype))
    if bias is not None:
        scores += bias
    seen = tf.ones(tf.shape(scores), tf.bool)
    if mask is not None:
        seen &= mask
    if is_causal:
        seen &= tf.linalg.band_part(seen, -1, 0)
    scores = tf.where(seen, scores, tf.constant(-1e30, scores.dtype))
    return tf.einsum("bnts,bsnh->btnh", tf.nn.softmax(scores), value)


# Scores at a time: at once, two heads, one head, some queries of a head.
SIZES = {"whole": None, "two heads": 100, "a head": 40, "queries": 15}
QUERY, KEY, VALUE = (2, 7, 4, 3), (2, 7, 4, 3), (2, 7, 4, 5)


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_attention_is_proved(size, is_causal):
    def op(query: Any, key: Any, value: Any) -> Any:
        return attention(
            query, key, value, is_causal=is_causal, block_size=SIZES[size]
        )

    def reference(query: Any, key: Any, value: Any) -> Any:
        return plain(query, key, value, is_causal=is_causal)

    inputs = [normal(*QUERY), normal(*KEY) + 0.1, normal(*VALUE)]
    check_gradient(op, reference, inputs, directions=2)


MASKS: dict[str, np.ndarray | None] = {
    "none": None,
    "padding": booleans(2, 1, 1, 7),
    "queries": booleans(2, 1, 7, 1),
    "each": booleans(2, 4, 7, 7),
    "shared": booleans(7, 7),
    "hides all": np.zeros((2, 1, 1, 7), bool),
}
BIASES: dict[str, tuple[int, ...] | None] = {
    "none": None,
    "of places": (1, 4, 7, 7),
    "of keys": (2, 1, 1, 7),
    "of all": (7, 7),
    "each": (2, 4, 7, 7),
}


# All pairs where the pieces are largest and smallest, the richest ones between.
PAIRS = [
    (size, mask, bias)
    for size, mask, bias in product(SIZES, MASKS, BIASES)
    if size in ("whole", "queries")
    or (mask in ("padding", "each") and bias in ("none", "each"))
]


@pytest.mark.parametrize(("size", "mask", "bias"), PAIRS)
def test_masks_and_biases(size, mask, bias):
    shape, seen = BIASES[bias], MASKS[mask]

    def op(query: Any, key: Any, value: Any, *bias: Any) -> Any:
        return attention(
            query,
            key,
            value,
            seen,
            *bias,
            is_causal=mask == "padding",
            block_size=SIZES[size],
        )

    def reference(query: Any, key: Any, value: Any, *bias: Any) -> Any:
        causal = mask == "padding"
        return plain(query, key, value, seen, *bias, is_causal=causal)

    inputs = [normal(*QUERY), normal(*KEY), normal(*VALUE)]
    inputs += [] if shape is None else [normal(*shape)]
    check_gradient(op, reference, inputs, directions=1)


SHAPES = {
    "one token": ((1, 1, 1, 2), (1, 1, 1, 2)),
    "one query": ((3, 1, 2, 3), (3, 5, 2, 3)),
    "more queries": ((2, 11, 3, 2), (2, 4, 3, 2)),
    "grouped": ((2, 5, 6, 3), (2, 5, 2, 3)),
    "one key head": ((2, 5, 4, 3), (2, 5, 1, 3)),
    "empty": ((0, 5, 2, 3), (0, 5, 2, 3)),
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name, size, is_causal):
    query, key = (tf.constant(normal(*each)) for each in SHAPES[name])

    def taken(function: Callable) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch((query, key))
            outputs = function()
            loss = tf.reduce_sum(tf.square(outputs))
        return [outputs, *tape.gradient(loss, (query, key))]

    expected = taken(lambda: plain(query, key, key, is_causal=is_causal))
    found = taken(
        lambda: attention(
            query, key, key, is_causal=is_causal, block_size=SIZES[size]
        )
    )
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("start", "shape"), [(0, (3, 5)), (7, (2, 9)), (40, 4)]
)
def test_dropout_draws_a_part_as_tensorflow_draws_the_whole(
    dtype, start, shape
):
    seed = tf.constant([3, 2**31 - 1])
    whole = tf.nn.experimental.stateless_dropout(tf.ones(64, dtype), 0.4, seed)
    draws = Draws(seed, 0.4, tf.as_dtype(dtype))
    shape = np.atleast_1d(shape)
    kept = draws.part(start, shape).numpy()
    end = start + kept.size
    np.testing.assert_array_equal(kept.ravel(), whole[start:end] > 0)


@pytest.mark.usefixtures("on_both_ways")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_dropout_is_that_of_tensorflow_both_ways(size, is_causal):
    seed = tf.constant([1, 2])
    inputs = [tf.constant(normal(*each)) for each in (QUERY, KEY, VALUE)]

    def by_the_book(query: Any, key: Any, value: Any) -> Any:
        identity = tf.eye(7, batch_shape=[2, 4])
        identity = tf.transpose(identity, [0, 2, 1, 3])
        weights = plain(query, key, identity, is_causal=is_causal)
        weights = tf.transpose(weights, [0, 2, 1, 3])
        kept = tf.nn.experimental.stateless_dropout(weights, 0.3, seed)
        return tf.einsum("bnts,bsnh->btnh", kept, value)

    def ours(query: Any, key: Any, value: Any) -> Any:
        return attention(
            query,
            key,
            value,
            is_causal=is_causal,
            dropout_rate=0.3,
            seed=seed,
            block_size=SIZES[size],
        )

    found = []
    for function in (by_the_book, ours):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.sin(function(*inputs)))
        found.append([loss, *tape.gradient(loss, inputs)])
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_in_blocks_no_tensor_has_the_size_of_the_scores():
    length = 64
    tokens = tf.constant(normal(1, length, 2, 3))

    @tf.function
    def step(query: Any, key: Any, value: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((query, key, value))
            made = attention(query, key, value, block_size=length * 4)
            loss = tf.reduce_sum(tf.square(made))
        return tape.gradient(loss, (query, key, value))

    graph = step.get_concrete_function(tokens, tokens, tokens).graph
    functions = [each.graph for each in graph._functions.values()]
    sizes = [
        output.shape.num_elements() or 0
        for each in (graph, *functions)
        for operation in each.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    ]
    assert length * 4 in sizes
    assert max(sizes) < length * length


@pytest.mark.parametrize("size", SIZES)
def test_unknown_sizes(size):
    shape = [None, None, 4, 3]

    @tf.function(input_signature=[tf.TensorSpec(shape), tf.TensorSpec(shape)])
    def step(query: Any, key: Any) -> Any:
        mask = tf.ones(tf.shape(query)[:2], tf.bool)[:, None, None, :]
        with tf.GradientTape() as tape:
            tape.watch((query, key))
            made = attention(query, key, key, mask, block_size=SIZES[size])
            loss = tf.reduce_sum(tf.sin(made))
        return tape.gradient(loss, (query, key))

    for batch, length in ((2, 7), (1, 1), (3, 5)):
        query = tf.constant(normal(batch, length, 4, 3))
        key = query + 0.5
        with tf.GradientTape() as tape:
            tape.watch((query, key))
            loss = tf.reduce_sum(tf.sin(plain(query, key, key)))
        expected = tape.gradient(loss, (query, key))
        for one, other in zip(step(query, key), expected):
            np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_a_second_derivative_is_refused(size):
    query = tf.constant(normal(*QUERY))
    with pytest.raises(NotImplementedError, match="`attention` has no"):
        with tf.GradientTape() as outer:
            outer.watch(query)
            with tf.GradientTape() as inner:
                inner.watch(query)
                made = attention(query, query, query, block_size=SIZES[size])
            first = inner.gradient(made, query)
        outer.gradient(first, query)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": (2, 7, 3, 3)}, "key_heads divides heads"),
        ({"key": (2, 7, 4, 2)}, "key_heads divides heads"),
        ({"value": (2, 6, 4, 3)}, "key_heads divides heads"),
        ({"query": (2, 7, 3)}, "key_heads divides heads"),
        ({"dropout_rate": 1.0}, "from 0 up to but not 1"),
        ({"dropout_rate": 0.5}, "needs a `seed`"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    shapes = {"query": QUERY, "key": KEY, "value": VALUE}
    given = {**shapes, **arguments}
    tensors = {name: tf.zeros(given.pop(name)) for name in shapes}
    with pytest.raises(ValueError, match=message):
        attention(**tensors, **given)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_stays_near_and_finite(dtype, size):
    query = 20 * normal(*QUERY)
    mask = MASKS["padding"].copy()
    mask[0] = False

    def taken(dtype: str) -> list[Any]:
        tensor = tf.cast(query, dtype)
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            made = attention(
                tensor, tensor, tensor, mask, block_size=SIZES[size]
            )
            loss = tf.reduce_sum(made)
        return [made, tape.gradient(loss, tensor)]

    made, gradient = taken(dtype)
    assert made.dtype == gradient.dtype == tf.as_dtype(dtype)
    assert np.isfinite(tf.cast(made, "float32")).all()
    assert np.isfinite(tf.cast(gradient, "float32")).all()
    bound = 0.02 if dtype == "float16" else 0.2
    expected, _ = taken("float32")
    apart = tf.cast(made, "float32") - expected
    assert tf.reduce_max(tf.abs(apart)) < bound * tf.reduce_max(expected)


def masked(kit: Kit, layer: Any, **call: Any) -> keras.Model:
    tokens = keras.Input((9,), dtype="int32")
    h = layers.Embedding(20, 8, mask_zero=True)(tokens)
    h = h + layer(h, h, **call)
    outputs = layers.Dense(2)(layers.GlobalAveragePooling1D()(h))
    return kit.functional(tokens, outputs)


def unmasked(kit: Kit, layer: Any, **call: Any) -> keras.Model:
    tokens = keras.Input((9,), dtype="int32")
    h = layers.Embedding(20, 8)(tokens)
    h = h + layer(h, h, **call)
    return kit.functional(tokens, layers.Dense(2)(layers.Flatten()(h)))


def heads(**options: Any) -> Any:
    return layers.MultiHeadAttention(2, 4, **options)


def grouped(**options: Any) -> Any:
    return layers.GroupQueryAttention(4, 4, 2, **options)


CAUSAL = {"use_causal_mask": True}
USED: dict[str, Callable[[Kit], keras.Model]] = {
    "plain": lambda k: unmasked(k, heads()),
    "causal": lambda k: unmasked(k, heads(), **CAUSAL),
    "padded": lambda k: masked(k, heads()),
    "padded and causal": lambda k: masked(k, heads(), **CAUSAL),
    "dropout": lambda k: unmasked(k, heads(dropout=0.3)),
    "dropout and causal": lambda k: unmasked(k, heads(dropout=0.3), **CAUSAL),
    "dropout and padded": lambda k: masked(k, heads(dropout=0.3)),
    "other values": lambda k: masked(k, heads(value_dim=3)),
    "grouped": lambda k: unmasked(k, grouped()),
    "grouped, causal": lambda k: unmasked(k, grouped(), **CAUSAL),
    "grouped, padded": lambda k: masked(k, grouped()),
    "grouped, dropout": lambda k: masked(k, grouped(dropout=0.3), **CAUSAL),
}


def stock_and_ours(
    build: Callable[[Kit], Any], **arguments: Any
) -> list[keras.Model]:
    return [
        train(
            lambda k=kit: build(k),
            ZOO["text"].data(),
            with_dense_gradients(keras.optimizers.Adam(0.01, epsilon=1e-3)),
            **ZOO["text"].compile(),
            **arguments,
        )
        for kit in (STOCK, FAST)
    ]


def explained(model: Any) -> str:
    return " ".join(model.fastgrad.explain().split())


@pytest.mark.filterwarnings("ignore:.*destroy the mask:UserWarning")
@pytest.mark.parametrize("name", USED)
def test_a_layer_trains_as_stock(name):
    stock, ours = stock_and_ours(USED[name])
    assert_same_training(stock, ours)
    assert "(attention)" in explained(ours)


COMPILED = ["causal", "padded and causal", "dropout and padded"]


@pytest.mark.filterwarnings("ignore:.*destroy the mask:UserWarning")
@pytest.mark.parametrize("name", [*COMPILED, "grouped, padded"])
def test_a_layer_trains_as_stock_compiled(name, monkeypatch):
    monkeypatch.setattr(compiled, "_SMALL", 0)
    stock, ours = stock_and_ours(USED[name])
    assert_same_training(stock, ours)
    assert "(attention)" in explained(ours)


@pytest.mark.filterwarnings("ignore:.*destroy the mask:UserWarning")
@pytest.mark.parametrize("name", ["padded", "grouped, dropout"])
def test_run_eagerly(name):
    stock, ours = stock_and_ours(USED[name], epochs=1, run_eagerly=True)
    assert_same_training(stock, ours)


def test_blocks_under_xla(monkeypatch):
    monkeypatch.setattr(attention_segments, "_MOST", 20)
    stock, ours = (
        train(
            lambda k=kit: USED["causal"](k),
            ZOO["text"].data(),
            with_dense_gradients(keras.optimizers.Adam(0.01, epsilon=1e-3)),
            **ZOO["text"].compile(),
            **arguments,
        )
        for kit, arguments in (
            (STOCK, {}),
            (FAST, {"fastgrad": fg.Strategy(jit_compile=True)}),
        )
    )
    for one, other in zip(stock.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


class Doubled(layers.MultiHeadAttention):
    """A layer with an attention of its own."""

    def _compute_attention(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._compute_attention(2 * query, *args, **kwargs)


class FirstOutput(layers.Layer):
    """Asks an attention layer for its scores, and leaves them."""

    def __init__(self, attend: Any) -> None:
        super().__init__()
        self.attend = attend

    def call(self, query: Any, value: Any) -> Any:
        return self.attend(query, value, return_attention_scores=True)[0]


def over_two_axes(kit: Kit) -> keras.Model:
    tokens = keras.Input((9,), dtype="int32")
    h = layers.Reshape((3, 3, 8))(layers.Embedding(20, 8)(tokens))
    h = layers.MultiHeadAttention(2, 4, attention_axes=(1, 2))(h, h)
    return kit.functional(tokens, layers.Dense(2)(layers.Flatten()(h)))


REFUSED: dict[str, tuple[Callable[[Kit], keras.Model], str]] = {
    "own": (
        lambda k: unmasked(k, Doubled(2, 4)),
        "Doubled has a `_compute_attention` of its own",
    ),
    "scores": (
        lambda k: unmasked(k, FirstOutput(heads())),
        "its scores are asked for",
    ),
    "scores of groups": (
        lambda k: unmasked(k, FirstOutput(grouped(dropout=0.2))),
        "its scores are asked for",
    ),
    "two axes": (over_two_axes, "it attends over several axes"),
    "all dropped": (
        lambda k: unmasked(k, heads(dropout=1.0)),
        "it drops all weights",
    ),
}


# Keras warns when dropout takes all weights.
@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_keras_gradient_says_why_and_trains_as_stock(name):
    build, why = REFUSED[name]
    stock, ours = stock_and_ours(build)
    assert_same_training(stock, ours)
    assert why in explained(ours)


def test_replicas():
    devices = tf.config.list_logical_devices("CPU")
    if len(devices) < 2:
        pytest.skip("needs two logical devices")
    with tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    ).scope():
        ours = train(
            lambda: USED["padded"](FAST),
            ZOO["text"].data(),
            keras.optimizers.SGD(0.1),
            **ZOO["text"].compile(),
        )
    stock = train(
        lambda: USED["padded"](STOCK),
        ZOO["text"].data(),
        keras.optimizers.SGD(0.1),
        **ZOO["text"].compile(),
    )
    for one, other in zip(stock.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5)
    assert "(attention)" in explained(ours)


def test_case_9_a_fully_masked_row_in_float16_is_finite():
    tokens = np.zeros((8, 9), "int32")
    tokens[4:] = ZOO["text"].data()[0][:4]
    model = train(
        lambda: masked(FAST, heads()),
        (tokens, np.arange(8) % 2),
        keras.optimizers.SGD(0.1),
        fastgrad=fg.Strategy(precision="mixed_float16"),
        **ZOO["text"].compile(),
    )
    assert "(attention)" in explained(model)
    assert all(np.isfinite(each).all() for each in model.get_weights())
    assert np.isfinite(model.history.history["loss"]).all()
