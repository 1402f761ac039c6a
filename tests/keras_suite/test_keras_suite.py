"""What passes in Keras's own trainer tests passes with our classes in them."""

import concurrent.futures
import importlib.util
import os

import pytest
from suite_runs import (
    STOCK,
    SWAPPED,
    Outcome,
    broken_by_swap,
    passing,
    run_keras_tests,
)

NEEDED = ("absl", "jax", "pandas")
# Of the 173 tests of Keras 3.15.1, 159 pass without torch and grain, and
# about 110 train. Far fewer would mean that the comparison is of nothing.
LEAST_PASSING, LEAST_TRAINING = 140, 90

SABOTAGE = """
from keras_fastgrad import step

def pytest_configure(config):
    step.update = lambda model, tape, loss: None
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All of Keras's trainer tests: stock, and with our classes."""
    require_what_the_tests_import()
    folder = tmp_path_factory.mktemp("keras_suite")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        stock = pool.submit(run_keras_tests, folder / "stock", STOCK)
        swapped = pool.submit(run_keras_tests, folder / "swapped", SWAPPED)
        return stock.result(), swapped.result()


def require_what_the_tests_import():
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if not missing:
        return
    reason = (
        f"Keras's trainer tests import {', '.join(missing)}: "
        "pip install '.[test,keras-suite]'"
    )
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.keras_suite
def test_what_passes_with_keras_passes_with_our_classes(runs, tmp_path):
    stock, swapped = runs
    assert len(passing(stock)) >= LEAST_PASSING

    def run_alone(test):
        name = test.rpartition("::")[2]
        return run_keras_tests(tmp_path / name, SWAPPED, [test])[test]

    broken = broken_by_swap(stock, swapped, run_alone)
    assert not broken, "\n\n".join(
        f"{test} {report}" for test, report in broken.items()
    )


@pytest.mark.keras_suite
def test_every_model_of_the_swapped_run_trains_with_our_function(runs):
    stock, swapped = runs
    trains = [test for test in passing(stock) if stock[test].trained_by]
    assert len(trains) >= LEAST_TRAINING
    assert {stock[test].trained_by for test in trains} == {("keras",)}
    not_ours = {
        test: swapped[test].trained_by
        for test in trains
        if swapped[test].trained_by != ("keras_fastgrad",)
    }
    assert not not_ours


@pytest.mark.keras_suite
def test_a_fault_of_ours_is_found_and_named(tmp_path):
    require_what_the_tests_import()
    test = "TestTrainer::test_fit_flow_graph_fn"
    (tmp_path / "sabotage_plugin.py").write_text(SABOTAGE)

    def run(name, *plugins):
        folder = tmp_path / name
        return run_keras_tests(folder, plugins, [test], tmp_path)

    stock = run("stock", *STOCK)
    assert passing(stock) == [test]
    assert (
        broken_by_swap(
            stock, run("whole", *SWAPPED), lambda test: pytest.fail(test)
        )
        == {}
    )
    broken = run("broken", *SWAPPED, "sabotage_plugin")
    assert list(broken_by_swap(stock, broken, broken.get)) == [test]


def test_a_second_try_decides():
    passed, failed = (
        Outcome("passed", (), ""),
        Outcome("failed", (), "E 1 != 2"),
    )
    skipped = Outcome("skipped", (), "no reason")
    stock = dict.fromkeys(("flaky", "bad", "left_out", "lost"), passed)
    stock["bad_in_keras"] = failed
    swapped = {"flaky": failed, "bad": failed, "left_out": skipped}
    alone = {"flaky": passed, "bad": failed, "left_out": skipped}
    broken = broken_by_swap(
        stock, swapped, lambda test: alone.get(test, failed)
    )
    assert broken == {
        "bad": "failed: E 1 != 2",
        "left_out": "skipped: no reason",
        "lost": "failed: E 1 != 2",
    }
