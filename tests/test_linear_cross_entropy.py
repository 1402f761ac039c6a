"""The chunked head: proofs, every option, training as stock, fall-backs."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, train, with_dense_gradients
from zoo import FAST, STOCK, Kit

import keras_fastgrad as fg
from keras_fastgrad.gradients import check_gradient, head, linear_cross_entropy

FEATURES, CLASSES = 3, 7


def adam() -> Any:
    return keras.optimizers.Adam(0.01, epsilon=1e-3)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape).astype("float32")


def labels_of(*shape: int, classes: int = CLASSES) -> np.ndarray:
    return np.random.default_rng(1).integers(0, classes, shape).astype("int32")


def plain(
    x: Any,
    kernel: Any,
    labels: Any,
    bias: Any = None,
    weight: Any = None,
    reduction: str | None = "mean",
    ignore_class: int | None = None,
    label_smoothing: float = 0.0,
    soft_cap: float | None = None,
    is_transposed: bool = False,
    **_: Any,
) -> Any:
    """The formula, with the matrix of logits."""
    logits = tf.tensordot(
        x, tf.transpose(kernel) if is_transposed else kernel, 1
    )
    logits = logits if bias is None else logits + bias
    if soft_cap:
        logits = soft_cap * tf.tanh(logits / soft_cap)
    classes = logits.shape[-1]
    counted = tf.ones(labels.shape, bool)
    if ignore_class is not None:
        counted = labels != ignore_class
    hot = tf.one_hot(labels, classes, dtype=logits.dtype)
    target = (1 - label_smoothing) * hot + label_smoothing / classes
    losses = -tf.reduce_sum(target * tf.nn.log_softmax(logits), -1)
    counts = tf.cast(counted, logits.dtype)
    weights = counts if weight is None else counts * weight
    losses *= weights
    if reduction is None:
        return losses
    total = {
        "sum": 1.0,
        "mean": tf.reduce_sum(counts),
        "mean_with_sample_weight": tf.reduce_sum(weights),
    }[reduction]
    return tf.reduce_sum(losses) / total


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks": {"chunk_size": 2},
    "chunks of one": {"chunk_size": 1, "reduction": "sum"},
    "each": {"reduction": None, "chunk_size": 3},
    "each at once": {"reduction": None},
    "weighted": {"reduction": "mean_with_sample_weight", "chunk_size": 2},
    "ignored": {"ignore_class": 2, "chunk_size": 2},
    "ignored, each": {"ignore_class": 2, "chunk_size": 2, "reduction": None},
    "smooth": {"label_smoothing": 0.2, "chunk_size": 2},
    "capped": {"soft_cap": 1.5, "chunk_size": 2},
    "all": {
        "soft_cap": 2.0,
        "label_smoothing": 0.1,
        "ignore_class": 1,
        "chunk_size": 2,
        "is_transposed": True,
    },
}


@pytest.mark.parametrize("shape", [(5,), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("name", OPTIONS)
def test_finite_differences_and_the_plain_formula(name, has_bias, shape):
    options, labels = OPTIONS[name], labels_of(*shape)
    if name == "weighted" and shape == (1,):
        pytest.skip("the loss does not depend on the one weight")
    kernel = normal(FEATURES, CLASSES, seed=2)
    if options.get("is_transposed"):
        kernel = kernel.T
    inputs = [normal(*shape, FEATURES), kernel, 1 + 0.1 * normal(*shape)]
    inputs += [normal(CLASSES, seed=3)] if has_bias else []

    def of(fn: Callable) -> Callable:
        def run(x: Any, kernel: Any, weight: Any, bias: Any = None) -> Any:
            return fn(x, kernel, labels, bias, weight, **options)

        return run

    check_gradient(of(linear_cross_entropy), of(plain), inputs, directions=2)


def test_a_gradient_without_the_labels_would_be_found():
    labels = labels_of(4)

    def wrong(x: Any, kernel: Any) -> Any:
        loss = linear_cross_entropy(x, kernel, labels)
        of_label = tf.gather(tf.transpose(kernel), labels)
        extra = tf.reduce_sum(x * of_label) / 4
        return loss + extra - tf.stop_gradient(extra)

    report = check_gradient(
        wrong,
        inputs=[normal(4, FEATURES), normal(FEATURES, CLASSES)],
        raise_on_error=False,
    )
    assert not report.ok


def test_nothing_as_large_as_the_logits_exists():
    tokens, classes = 4096, 1000

    @tf.function(autograph=False)
    def run(x: Any, kernel: Any, bias: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, kernel, bias])
            loss = linear_cross_entropy(x, kernel, labels, bias, chunk_size=256)
        return tape.gradient(loss, [x, kernel, bias])

    graph = run.get_concrete_function(
        tf.TensorSpec((tokens, 8)),
        tf.TensorSpec((8, classes)),
        tf.TensorSpec((classes,)),
        tf.TensorSpec((tokens,), tf.int32),
    ).graph
    functions = graph.as_graph_def(add_shapes=True).library.function
    largest = 0
    for function in functions:
        for node in function.node_def:
            for shape in node.attr["_output_shapes"].list.shape:
                sizes = [dim.size for dim in shape.dim]
                largest = max(largest, int(np.prod(sizes)))
    assert 256 * classes <= largest < tokens * classes / 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_case_8_integer_labels_and_half_precision(dtype):
    x, kernel = normal(3, 64), 0.05 * normal(64, 5000, seed=2)
    labels = np.array([257, 2049, 4097])
    results = []
    for kind in ("float32", dtype):
        tensors = [tf.cast(tf.constant(each), kind) for each in (x, kernel)]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = linear_cross_entropy(*tensors, labels)
        assert loss.dtype == tf.float32
        gradients = tape.gradient(loss, tensors)
        assert [each.dtype for each in gradients] == [tf.as_dtype(kind)] * 2
        results.append([loss, *gradients])
    for exact, half in zip(*results):
        exact, half = (tf.cast(each, "float32") for each in (exact, half))
        apart = tf.norm(half - exact) / tf.norm(exact)
        assert apart < 2e-2


def test_a_dtype_for_products_alone():
    x, kernel, labels = normal(6, 8), normal(8, 9), labels_of(6)
    with tf.GradientTape() as tape:
        kernel = tf.constant(kernel)
        tape.watch(kernel)
        loss = linear_cross_entropy(x, kernel, labels, dtype="bfloat16")
    assert loss.dtype == tape.gradient(loss, kernel).dtype == tf.float32
    assert float(loss) == pytest.approx(float(plain(x, kernel, labels)), 1e-2)


def test_no_tokens_at_all():
    x, kernel = tf.zeros((0, 3)), tf.ones((3, 4))
    with tf.GradientTape() as tape:
        tape.watch([x, kernel])
        loss = linear_cross_entropy(x, kernel, np.zeros((0,), "int32"))
    assert float(loss) == 0.0
    of_x, of_kernel = tape.gradient(loss, [x, kernel])
    assert of_x.shape == (0, 3) and not of_kernel.numpy().any()


def test_all_tokens_ignored():
    labels = np.full(4, -100)
    loss = linear_cross_entropy(
        normal(4, 3), normal(3, 5), labels, ignore_class=-100
    )
    assert float(loss) == 0.0


def test_sizes_that_vary():
    kernel = normal(FEATURES, CLASSES)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, FEATURES)),
            tf.TensorSpec((None, None), tf.int32),
        ],
        autograph=False,
    )
    def run(x: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = linear_cross_entropy(x, kernel, labels, chunk_size=4)
        return loss, tape.gradient(loss, x)

    for shape in [(2, 5), (1, 1), (3, 4), (7, 3)]:
        x, labels = tf.constant(normal(*shape, FEATURES)), labels_of(*shape)
        with tf.GradientTape() as tape:
            tape.watch(x)
            expected = plain(x, kernel, labels)
        loss, gradient = run(x, labels)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        np.testing.assert_allclose(
            gradient, tape.gradient(expected, x), rtol=1e-4, atol=1e-6
        )


def test_whole_function_under_xla():
    x, kernel, labels = normal(5, 3), normal(3, 7), labels_of(5)

    @tf.function(jit_compile=True, autograph=False)
    def run(x: Any, kernel: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = linear_cross_entropy(x, kernel, labels, chunk_size=2)
        return loss, tape.gradient(loss, kernel)

    kernel = tf.constant(kernel)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        expected = plain(x, kernel, labels)
    loss, gradient = run(x, kernel)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(
        gradient, tape.gradient(expected, kernel), rtol=1e-4, atol=1e-6
    )


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "reduction": ({"reduction": "max"}, "reduction='max'"),
    "float labels": ({"labels": np.zeros(4)}, "labels of dtype float64"),
    "shape": ({"kernel": np.zeros((4, 5), "float32")}, r"\(4, 5\)"),
    "rank": ({"labels": np.zeros((4, 1), "int32")}, r"\(4, 1\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_one_clear_error(name):
    changed, match = BAD[name]
    arguments = {
        "inputs": normal(4, 3),
        "kernel": normal(3, 5),
        "labels": np.zeros(4, "int32"),
    }
    with pytest.raises(ValueError, match=match):
        linear_cross_entropy(**(arguments | changed))


@pytest.mark.parametrize("bad", [-1, 5])
@pytest.mark.parametrize("reduction", ["mean", None])
def test_a_label_that_is_no_class(bad, reduction):
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 4"):
        linear_cross_entropy(
            normal(2, 3), normal(3, 5), np.array([0, bad]), reduction=reduction
        )


def test_a_second_derivative_is_a_clear_error():
    x, kernel, labels = tf.constant(normal(4, 3)), normal(3, 5), labels_of(4)
    labels = labels % 5
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        outer.watch(x)
        inner.watch(x)
        loss = linear_cross_entropy(x, kernel, labels)
        first = inner.gradient(loss, x)
    with pytest.raises(NotImplementedError, match="linear_cross_entropy"):
        outer.gradient(first, x)


@pytest.fixture
def small_heads(monkeypatch):
    monkeypatch.setattr(head, "_SMALL", 0)


def sentences(masked: bool = False) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(5).integers(1, 12, (46, 6)).astype("int32")
    y = (x + 1) % 12
    if masked:
        x[:, 4:] = 0
    return x, y


def tagger(
    last: Callable[[], list[Any]], masked: bool = False, length: Any = 6
) -> Callable[[Kit], keras.Model]:
    def build(kit: Kit) -> keras.Model:
        return kit.sequential(
            [
                keras.Input((length,), dtype="int32"),
                layers.Embedding(12, 8, mask_zero=masked),
                layers.Dense(8, activation="tanh"),
                *last(),
            ]
        )

    return build


def dense(**options: Any) -> Callable[[], list[Any]]:
    return lambda: [layers.Dense(12, **options)]


def crossentropy(**options: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(
        **({"from_logits": True} | options)
    )


HEADS: dict[str, tuple[Callable, Any]] = {
    "logits": (dense(), crossentropy()),
    "no bias": (dense(use_bias=False), crossentropy()),
    "softmax": (dense(activation="softmax"), crossentropy(from_logits=False)),
    "softmax by name": (
        dense(activation="softmax"),
        "sparse_categorical_crossentropy",
    ),
    "softmax layer": (
        lambda: [layers.Dense(12), layers.Activation("softmax")],
        keras.losses.sparse_categorical_crossentropy,
    ),
    "sum": (dense(), crossentropy(reduction="sum")),
    "weighted mean": (
        dense(),
        crossentropy(reduction="mean_with_sample_weight"),
    ),
    "ignored": (dense(), crossentropy(ignore_class=3)),
    "regularized": (
        dense(kernel_regularizer="l2", bias_constraint="non_neg"),
        crossentropy(),
    ),
}


def compare(
    build: Callable[[Kit], keras.Model],
    loss: Any,
    data: tuple[Any, ...],
    **arguments: Any,
) -> keras.Model:
    stock, ours = (
        train(
            lambda k=kit: build(k),
            data,
            with_dense_gradients(adam()) if kit is STOCK else adam(),
            loss=loss,
            **arguments,
        )
        for kit in (STOCK, FAST)
    )
    assert_same_training(stock, ours)
    assert "(linear_cross_entropy)" in ours.fastgrad.explain()
    return ours


@pytest.mark.usefixtures("small_heads")
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_trains_as_stock(name, masked):
    last, loss = HEADS[name]
    compare(tagger(last, masked), loss, sentences(masked))


@pytest.mark.usefixtures("small_heads")
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("of", ["samples", "tokens"])
@pytest.mark.parametrize("name", ["logits", "weighted mean", "ignored"])
def test_case_27_sample_weights_and_masks(name, of, masked):
    last, loss = HEADS[name]
    x, y = sentences(masked)
    weights = np.random.default_rng(2).random(y.shape).astype("float32")
    if of == "samples":
        weights = weights[:, :1]
    fit = {"sample_weight": weights}
    compare(tagger(last, masked), loss, (x, y), fit=fit)


@pytest.mark.usefixtures("small_heads")
def test_labels_with_an_axis_more_and_of_float_dtype():
    x, y = sentences()
    compare(tagger(dense()), crossentropy(), (x, y[..., None]))
    compare(tagger(dense()), crossentropy(), (x, y.astype("float32")))


@pytest.mark.usefixtures("small_heads")
def test_loss_weights_eager_mode_and_unknown_lengths():
    build = tagger(dense(), length=None)
    compare(build, crossentropy(), sentences(), loss_weights=0.3)
    compare(build, crossentropy(), sentences(), run_eagerly=True, epochs=1)


@pytest.mark.usefixtures("small_heads")
def test_the_model_stays_the_users_own(tmp_path):
    ours = compare(tagger(dense()), crossentropy(), sentences())
    x, y = sentences()
    kernel, bias = ours.layers[-1].get_weights()
    logits = ours.predict(x, verbose=0)
    assert logits.shape == (46, 6, 12)
    hidden = keras.Model(ours.inputs, ours.layers[-2].output).predict(
        x, verbose=0
    )
    np.testing.assert_allclose(logits, hidden @ kernel + bias, rtol=1e-5)
    ours.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), logits)
    assert ours.evaluate(x, y, verbose=0) == pytest.approx(
        loaded.evaluate(x, y, verbose=0)
    )


@pytest.mark.usefixtures("small_heads")
def test_under_a_mirrored_strategy():
    losses = []
    for kit in (STOCK, FAST):
        keras.utils.set_random_seed(1)
        mirrored = tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"],
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )
        with mirrored.scope():
            model = tagger(dense())(kit)
            model.compile("sgd", crossentropy())
        history = model.fit(*sentences(), batch_size=46, epochs=3, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.usefixtures("small_heads")
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision_stays_near(precision):
    losses = [
        train(
            lambda: tagger(dense())(FAST),
            sentences(),
            adam(),
            loss=crossentropy(),
            fastgrad=strategy,
        ).history.history["loss"][-1]
        for strategy in (True, fg.Strategy(precision=precision))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)


def twice(kit: Kit) -> keras.Model:
    """The last Dense is called twice."""
    tokens = keras.Input((6,), dtype="int32")
    shared = layers.Dense(12)
    hidden = shared(layers.Embedding(12, 12)(tokens))
    return kit.functional(tokens, shared(hidden))


def read_again(kit: Kit) -> keras.Model:
    """What the last Dense makes is used by another layer, for a loss."""
    tokens = keras.Input((6,), dtype="int32")
    logits = layers.Dense(12)(layers.Embedding(12, 8)(tokens))
    penalty = layers.ActivityRegularization(l2=1e-3)(logits)
    model = kit.functional(tokens, [logits, penalty])
    return model


class Scored(fg.FastGradSequential):
    """A model with a loss of its own."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """Twice that of Keras."""
        return 2.0 * super().compute_loss(*args, **kwargs)


REFUSED: dict[str, tuple[Callable, dict[str, Any], str]] = {
    "metrics": (
        tagger(dense()),
        {"metrics": ["accuracy"]},
        "metrics need its logits",
    ),
    "probabilities": (
        tagger(dense()),
        {"loss": "sparse_categorical_crossentropy"},
        "`from_logits` of the loss",
    ),
    "activity": (
        tagger(dense(activity_regularizer="l2")),
        {},
        "activity regularizer",
    ),
    "own loss": (
        lambda kit: Scored(tagger(dense())(STOCK).layers),
        {},
        "the model has a `compute_loss` of its own",
    ),
}


@pytest.mark.usefixtures("small_heads")
@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_the_logits_says_why(name):
    build, arguments, why = REFUSED[name]
    model = train(
        lambda: build(FAST),
        sentences(),
        adam(),
        **({"loss": crossentropy()} | arguments),
    )
    assert why in " ".join(model.fastgrad.explain().split())


@pytest.mark.usefixtures("small_heads")
@pytest.mark.parametrize("build", [twice, read_again])
def test_a_dense_used_otherwise_is_left_alone(build):
    model = build(FAST)
    model.compile(adam(), crossentropy())
    assert "linear_cross_entropy" not in model.fastgrad.explain()


def test_a_small_head_is_left_alone():
    model = tagger(dense())(FAST)
    model.compile(adam(), crossentropy())
    assert "less than 1,024 logits" in model.fastgrad.explain()
