"""The head that never writes its logits."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training
from zoo import FAST, STOCK, Kit

import keras_fastgrad as fg
from keras_fastgrad.layers import LinearCrossEntropy

CLASSES, LENGTH, WIDTH = 30, 6, 8


def tokens(samples: int = 24) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(2)
    x = draw.integers(1, CLASSES, (samples, LENGTH)).astype("int32")
    x[::3, -2:] = 0
    return x, (x * 7 % CLASSES).astype("int32")


class Table(layers.Layer):
    """An embedding by a product, whose gradient is dense on both sides."""

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(shape=(CLASSES, WIDTH))

    def call(self, inputs: Any) -> Any:
        return keras.ops.one_hot(inputs, CLASSES) @ self.kernel


def body(inputs: Any, is_masked: bool) -> Any:
    if not is_masked:
        return layers.Dense(WIDTH, activation="tanh")(Table()(inputs))
    hidden = layers.Embedding(CLASSES, WIDTH, mask_zero=True)(inputs)
    return layers.Dense(WIDTH, activation="tanh")(hidden)


def stock(is_masked: bool, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((LENGTH,), dtype="int32")
    logits = layers.Dense(CLASSES, name="head")(body(inputs, is_masked))
    model = STOCK.functional(inputs, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, **options
    )
    model.compile(keras.optimizers.SGD(0.3), loss)
    return model


def ours(
    kit: Kit,
    is_masked: bool,
    has_weights: bool = False,
    compiled: dict[str, Any] | None = None,
    **options: Any,
) -> keras.Model:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((LENGTH,), dtype="int32")
    labels = keras.Input((LENGTH,), dtype="int32")
    hidden = body(inputs, is_masked)
    head = LinearCrossEntropy(CLASSES, name="head", **options)
    given = [inputs, labels]
    if has_weights:
        given.append(keras.Input((LENGTH,)))
    model = kit.functional(given, head(hidden, *given[1:]))
    model.compile(keras.optimizers.SGD(0.3), **(compiled or {}))
    return model


def alike(one: keras.Model, other: keras.Model) -> tuple[Any, Any]:
    """Both with the weights of the first."""
    other.set_weights(one.get_weights())
    return one, other


def fit(model: keras.Model, *data: Any, **options: Any) -> keras.Model:
    model.fit(
        *data, batch_size=8, epochs=2, shuffle=False, verbose=0, **options
    )
    return model


@pytest.mark.parametrize("kit", [STOCK, FAST], ids=["stock", "fast"])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"ignore_class": 7}], ids=str)
def test_it_trains_as_dense_and_its_loss(kit, is_masked, options):
    x, y = tokens()
    one, other = alike(
        stock(is_masked, **options), ours(kit, is_masked, **options)
    )
    assert_same_training(fit(one, x, y), fit(other, [x, y]))


def test_a_mask_given_by_hand_wins():
    x, y = tokens()
    head = LinearCrossEntropy(CLASSES)
    hidden = tf.random.stateless_normal((*x.shape, WIDTH), [1, 2])
    keep = np.arange(LENGTH) < 2
    keep = np.broadcast_to(keep, x.shape)
    np.testing.assert_allclose(
        head(hidden, y, mask=tf.constant(keep)),
        head(hidden[:, :2], y[:, :2]),
        rtol=1e-5,
    )


def test_sample_weights_are_those_of_a_loss():
    x, y = tokens()
    weights = np.random.default_rng(0).random((len(x), LENGTH))
    weights = weights.astype("float32")
    one, other = alike(stock(False), ours(FAST, False, has_weights=True))
    fit(one, x, y, sample_weight=weights)
    assert_same_training(one, fit(other, [x, y, weights]))


@pytest.mark.parametrize(
    "compiled",
    [
        {"run_eagerly": True},
        {"fastgrad": fg.Strategy(jit_compile=True)},
        {"fastgrad": fg.Strategy(precision="mixed_bfloat16")},
    ],
    ids=["eager", "xla", "bfloat16"],
)
def test_other_ways_to_run(compiled):
    x, y = tokens()
    expected = fit(ours(FAST, False), [x, y])
    found = fit(ours(FAST, False, compiled=compiled), [x, y])
    half = "bfloat16" in str(compiled)
    for one, other in zip(expected.get_weights(), found.get_weights()):
        np.testing.assert_allclose(other, one, atol=0.02 if half else 1e-4)


def test_evaluate_gives_the_loss_of_all():
    x, y = tokens()
    one, other = alike(stock(False), ours(FAST, False))
    fit(one, x, y)
    fit(other, [x, y])
    assert other.evaluate([x, y], verbose=0) == pytest.approx(
        one.evaluate(x, y, verbose=0), rel=1e-4
    )


@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_without_labels_it_gives_logits(soft_cap):
    head = LinearCrossEntropy(CLASSES, soft_cap=soft_cap)
    hidden = np.random.default_rng(1).random((2, LENGTH, WIDTH)) * 4
    hidden = hidden.astype("float32")
    expected = hidden @ head_kernel(head, hidden) + head.bias.numpy()
    if soft_cap:
        expected = soft_cap * np.tanh(expected / soft_cap)
    np.testing.assert_allclose(head(hidden), expected, rtol=1e-4, atol=1e-5)


def head_kernel(head: Any, inputs: Any) -> np.ndarray:
    head(inputs)
    head.bias.assign(np.linspace(-1, 1, CLASSES))
    return head.kernel.numpy()


def test_logits_keep_the_mask():
    inputs = keras.Input((LENGTH,), dtype="int32")
    head = LinearCrossEntropy(CLASSES)
    model = STOCK.functional(inputs, head(body(inputs, True)))
    model.compile("sgd", _cross_entropy())
    plain = STOCK.functional(
        inputs, layers.Dense(CLASSES)(model.layers[2].output)
    )
    plain.layers[-1].set_weights(head.get_weights())
    plain.compile("sgd", _cross_entropy())
    data = tokens()
    assert model.evaluate(*data, verbose=0) == pytest.approx(
        plain.evaluate(*data, verbose=0), rel=1e-5
    )


def _cross_entropy() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("k", [1, 4, CLASSES])
@pytest.mark.parametrize("chunk_size", [None, 5])
@pytest.mark.parametrize("is_tied", [False, True])
def test_top_k_is_that_of_the_logits(k, chunk_size, is_tied):
    table = layers.Embedding(CLASSES, WIDTH)
    table.build()
    head = LinearCrossEntropy(
        CLASSES, chunk_size=chunk_size, tied_to=table if is_tied else None
    )
    hidden = tf.random.stateless_normal((3, LENGTH, WIDTH), [1, 2])
    expected = tf.math.top_k(tf.nn.log_softmax(head(hidden)), k)
    found = head.top_k(hidden, k)
    np.testing.assert_array_equal(found.classes, expected.indices)
    np.testing.assert_allclose(
        found.log_probabilities, expected.values, rtol=1e-4, atol=1e-5
    )


def test_top_k_holds_no_matrix_of_logits():
    head = LinearCrossEntropy(1000, chunk_size=4)

    @tf.function
    def best(hidden: Any) -> Any:
        return head.top_k(hidden, 2)

    graph = best.get_concrete_function(tf.ones((64, 8))).graph
    functions = [each.graph for each in graph._functions.values()]
    sizes = [
        output.shape.num_elements() or 0
        for each in (graph, *functions)
        for operation in each.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    ]
    assert 4 * 1000 in sizes
    assert max(sizes) < 64 * 1000


@pytest.mark.parametrize("k", [0, CLASSES + 1])
def test_top_k_of_more_than_all_is_refused(k):
    with pytest.raises(ValueError, match="from 1 to the 30 classes"):
        LinearCrossEntropy(CLASSES).top_k(tf.ones((2, WIDTH)), k)


def tied(kit: Kit) -> keras.Model:
    """The table of the embedding is the kernel of the head."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((LENGTH,), dtype="int32")
    labels = keras.Input((LENGTH,), dtype="int32")
    table = layers.Embedding(CLASSES, WIDTH)
    hidden = layers.Dense(WIDTH, activation="tanh")(table(inputs))
    loss = LinearCrossEntropy(CLASSES, tied_to=table)(hidden, labels)
    model = kit.functional([inputs, labels], loss)
    model.compile(keras.optimizers.SGD(0.3))
    return model


def of_type(model: keras.Model, kind: type) -> list[Any]:
    return [each for each in model.layers if isinstance(each, kind)]


class TiedByHand(keras.Model):
    """The same, with the logits in memory."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        [self.table] = of_type(model, layers.Embedding)
        [self.dense] = of_type(model, layers.Dense)
        self.bias = self.add_weight(shape=(CLASSES,), initializer="zeros")

    def call(self, inputs: Any) -> Any:
        hidden = self.dense(self.table(inputs))
        kernel = keras.ops.transpose(self.table.embeddings)
        return hidden @ kernel + self.bias


def test_a_tied_head_trains_as_one_by_hand():
    x, y = tokens()
    model = tied(FAST)
    by_hand = TiedByHand(tied(STOCK))
    by_hand.compile(keras.optimizers.SGD(0.3), _cross_entropy())
    fit(model, [x, y])
    fit(by_hand, x, y)
    kernels = [
        {tuple(w.shape): w.numpy() for w in each.weights}
        for each in (model, by_hand)
    ]
    assert len(model.weights) == len(by_hand.weights) == 4
    for shape, values in kernels[0].items():
        np.testing.assert_allclose(
            values, kernels[1][shape], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("build", ["own", "tied"])
def test_a_model_is_saved_with_its_head(build, tmp_path):
    x, y = tokens()
    options = {
        "label_smoothing": 0.1,
        "soft_cap": 5.0,
        "kernel_regularizer": "l2",
    }
    model = tied(FAST) if build == "tied" else ours(FAST, False, **options)
    fit(model, [x, y])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(
        tmp_path / "model.keras", custom_objects={"Table": Table}
    )
    assert type(loaded) is type(model)
    assert len(loaded.weights) == len(model.weights)
    loss = model.evaluate([x, y], verbose=0)
    assert loaded.evaluate([x, y], verbose=0) == pytest.approx(loss, rel=1e-5)
    # Training goes on alike, so the kernel is still tied.
    for one, other in zip(
        fit(model, [x, y]).get_weights(), fit(loaded, [x, y]).get_weights()
    ):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_labels_are_not_rounded_in_half_precision():
    head = LinearCrossEntropy(1000, dtype="mixed_bfloat16")
    hidden = tf.random.stateless_normal((9, WIDTH), [1, 2])
    labels = tf.range(9) * 111
    logits = head(hidden)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(
        head(hidden, labels), tf.reduce_mean(expected), rtol=1e-2
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": None}, "must give a number"),
        ({"reduction": "none"}, "must give a number"),
        ({"tied_to": layers.Embedding(7, 4)}, "a row for each class"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LinearCrossEntropy(CLASSES, **options)


def test_a_table_that_is_not_there_yet_is_asked_for():
    head = LinearCrossEntropy(CLASSES, tied_to=layers.Embedding(CLASSES, 4))
    with pytest.raises(ValueError, match="a built Embedding"):
        head(tf.ones((2, 4)))
