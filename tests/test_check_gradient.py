"""The checker finds wrong gradients, and no others."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from keras_fastgrad.gradients import check_gradient

X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
BIAS = np.random.default_rng(1).standard_normal(4).astype("float32")


def with_gradient(fn: Callable, gradient: Callable) -> Callable:
    """`fn` with another gradient, a function of the inputs and upstream."""

    @tf.custom_gradient
    def replaced(*inputs: tf.Tensor) -> tuple:
        return fn(*inputs), lambda upstream: gradient(*inputs, upstream)

    return replaced


def softmax_gradient(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    y = tf.nn.softmax(x)
    return y * (upstream - tf.reduce_sum(upstream * y, -1, keepdims=True))


def article(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    return upstream * (tf.exp(x) * (1 - tf.exp(x)))


def without_sum(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(x) * upstream


WRONG = {
    "the article's": article,
    "off-diagonal terms missing": without_sum,
    "sign flipped": lambda x, dy: -softmax_gradient(x, dy),
    "factor missing": lambda x, dy: 2.0 * softmax_gradient(x, dy),
    "none at all": lambda x, dy: None,
    "one element": lambda x, dy: (
        softmax_gradient(x, dy)
        + tf.one_hot([5], 12, 1e-3, 0.0, dtype=x.dtype)[0][None, :]
        .numpy()
        .reshape(3, 4)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_softmax_is_found_wrong(name):
    softmax = with_gradient(tf.nn.softmax, WRONG[name])
    with pytest.raises(AssertionError, match="finite difference of input 0"):
        check_gradient(softmax, inputs=[X])
    report = check_gradient(softmax, tf.nn.softmax, [X], raise_on_error=False)
    assert not report.ok
    checks = {finding.check for finding in report.findings}
    assert checks == {"finite difference of input", "gradient of input"}


def test_a_right_softmax_passes():
    softmax = with_gradient(tf.nn.softmax, softmax_gradient)
    report = check_gradient(softmax, tf.nn.softmax, [X])
    assert report.ok
    assert str(report) == "right in 6 comparisons"


def test_the_element_and_both_values_are_named():
    softmax = with_gradient(tf.nn.softmax, WRONG["one element"])
    report = check_gradient(softmax, inputs=[X], raise_on_error=False)
    finding = report.findings[0]
    assert finding.element == (1, 1)
    assert finding.received - finding.expected == pytest.approx(1e-3, rel=1e-3)
    assert "element [1, 1]" in str(report)


def test_a_wrong_reduction_of_a_broadcast_is_found():
    def add(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return x * bias

    def mean(x: tf.Tensor, bias: tf.Tensor, dy: tf.Tensor) -> tuple:
        return dy * bias, tf.reduce_mean(dy * x, 0)

    report = check_gradient(
        with_gradient(add, mean), inputs=[X, BIAS], raise_on_error=False
    )
    assert {finding.index for finding in report.findings} == {1}


def test_a_wrong_value_is_found_by_the_reference():
    def shifted(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x) + 0.01

    report = check_gradient(shifted, tf.tanh, [X], raise_on_error=False)
    assert [f.check for f in report.findings] == ["value of output"]


def test_a_gradient_that_is_not_a_number_is_found():
    broken = with_gradient(tf.tanh, lambda x, dy: dy * float("nan"))
    assert not check_gradient(broken, inputs=[X], raise_on_error=False).ok
    report = check_gradient(broken, tf.tanh, [X], raise_on_error=False)
    assert "gradient of input" in {f.check for f in report.findings}


def test_integers_structures_and_empty_inputs():
    def fn(table: tf.Tensor, ids: tf.Tensor, nothing: tf.Tensor) -> dict:
        rows = tf.gather(table, ids)
        return {"rows": rows, "sum": (tf.reduce_sum(rows), tf.shape(nothing))}

    inputs = [X, np.array([0, 2, 2]), np.zeros((0, 3), "float32")]
    assert check_gradient(fn, fn, inputs).ok


def test_nothing_to_check_is_an_error():
    with pytest.raises(ValueError, match="at least one input of a float"):
        check_gradient(tf.abs, inputs=[np.array([1, 2])])
