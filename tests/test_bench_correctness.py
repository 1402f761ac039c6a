import math

import keras
import numpy as np
import pytest

from keras_fastgrad.bench.correctness import (
    Reference,
    largest_difference,
    load,
    sampled,
    save,
    tolerance_of,
    verdict,
)


@pytest.mark.parametrize(
    ("loss", "reference", "tolerance", "expected"),
    [
        (1.0005, 1.0, 1e-3, "right"),
        (0.9995, 1.0, 1e-3, "right"),
        (1.002, 1.0, 1e-3, "wrong"),
        (0.5, 1.0, 1e-3, "wrong"),  # a better loss is another training
        (1.002, 1.0, 2e-2, "right"),
        (0.0105, 0.01, 2e-2, "wrong"),  # relative, not absolute
        (1.0, None, 1e-3, "unchecked"),
        (math.nan, 1.0, 1e-3, "wrong"),
        (math.inf, None, 1e-3, "wrong"),
        (1.0, math.nan, 1e-3, "wrong"),
    ],
)
def test_verdict(loss, reference, tolerance, expected):
    assert verdict(loss, reference, tolerance) == expected


def test_tolerance_follows_the_precision():
    assert tolerance_of("steps_per_execution=32") == 1e-3
    assert tolerance_of("default") == 1e-3
    assert tolerance_of("precision=mixed_bfloat16") == 2e-2
    assert tolerance_of("bfloat16,compiled") == 2e-2


def test_largest_difference_is_over_all_weights():
    weights = [np.zeros((2, 2)), np.array([1.0, 2.0])]
    other = [np.zeros((2, 2)), np.array([1.0, 1.5])]

    assert largest_difference(weights, other) == 0.5
    assert largest_difference(weights, weights) == 0.0


def test_largest_difference_is_infinite_where_a_weight_is_not_finite():
    good, bad = [np.zeros(3)], [np.array([0.0, np.nan, 0.0])]

    assert largest_difference(bad, good) == math.inf


def test_other_shapes_cannot_be_compared():
    with pytest.raises(ValueError, match=r"same shapes.*Remove the old"):
        largest_difference([np.zeros(3)], [np.zeros(1)])


def test_small_variable_is_kept_whole():
    values = np.arange(6.0).reshape(2, 3)

    assert np.array_equal(sampled(keras.Variable(values)), values)


def test_large_table_is_sampled_over_its_whole_length():
    rows = 40_000
    values = np.repeat(np.arange(rows, dtype="float32")[:, None], 64, axis=1)

    sample = sampled(keras.Variable(values))

    assert sample.shape == (8192, 64)
    assert np.array_equal(sample[:4096], values[:4096])
    assert sample[-1, 0] == rows - 1
    assert np.all(np.diff(sample[:, 0]) > 0)


def test_reference_comes_back_from_its_file(tmp_path):
    # Eleven weights: by name, w10 would come before w2.
    weights = [np.full((2, at + 1), at) for at in range(11)]
    path = tmp_path / "folder" / "reference.npz"

    save(path, Reference(30, 0.25, weights))
    read = load(path)

    assert (read.steps, read.loss) == (30, 0.25)
    assert largest_difference(read.weights, weights) == 0.0
