"""Runs Keras's trainer tests in a process of their own and compares runs."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import keras

import keras_fastgrad

HERE = Path(__file__).parent
TEST_FILE = Path(keras.__file__).parent / "src" / "trainers" / "trainer_test.py"
STOCK = ("record_plugin",)
SWAPPED = ("record_plugin", "swap_plugin")
TIME_LIMIT = 1200.0  # seconds; a run takes about 150 on two free cores

# Pytest's exit codes for a run that got to its end.
_ALL_PASSED, _SOME_FAILED = 0, 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a test ended.

    Args:
        outcome: `"passed"`, `"failed"` or `"skipped"`.
        trained_by: Whose train functions it used: `"keras"`,
            `"keras_fastgrad"`, both or neither.
        why: The report of a test that did not pass.
    """

    outcome: str
    trained_by: tuple[str, ...]
    why: str


def run_keras_tests(
    folder: Path,
    plugins: Iterable[str],
    tests: Iterable[str] = (),
    plugin_folder: Path = HERE,
) -> dict[str, Outcome]:
    """Runs Keras's trainer tests under some plugins.

    Args:
        folder: An empty folder for this run.
        plugins: Names of the pytest plugins to load, in order.
        tests: Tests to run, as `Class::test`; all if there are none.
        plugin_folder: Where plugins are found besides this folder.

    Returns:
        The outcome of each test, by `Class::test`.
    """
    folder.mkdir(parents=True)
    written = folder / "outcomes.json"
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers = requires_trainable_backend: set by Keras\n"
    )
    chosen = [f"{TEST_FILE}::{test}" for test in tests] or [str(TEST_FILE)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for plugin in plugins:
        command += ["-p", plugin]
    command += ["-c", str(folder / "pytest.ini"), "--outcomes", str(written)]
    done = subprocess.run(
        [*command, *chosen],
        cwd=folder,
        env=_environment([HERE, plugin_folder]),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    if done.returncode not in (_ALL_PASSED, _SOME_FAILED):
        raise RuntimeError(
            f"Keras's tests could not be run ({' '.join(command)}):\n"
            f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return {
        test: Outcome(
            entry["outcome"], tuple(entry["trained_by"]), entry["why"]
        )
        for test, entry in json.loads(written.read_text()).items()
    }


def passing(run: dict[str, Outcome]) -> list[str]:
    """The tests of a run that passed."""
    return [test for test, end in run.items() if end.outcome == "passed"]


def broken_by_swap(
    stock: dict[str, Outcome],
    swapped: dict[str, Outcome],
    run_alone: Callable[[str], Outcome],
) -> dict[str, str]:
    """The tests that pass with stock Keras and not swapped.

    Args:
        stock: The run with stock Keras.
        swapped: The run with our classes.
        run_alone: Runs one test swapped. Such a test gets this second try,
            so that one that fails now and then is not laid to the swap.

    Returns:
        The report of the second try, by test.
    """
    broken = {}
    for test in passing(stock):
        if test in swapped and swapped[test].outcome == "passed":
            continue
        second = run_alone(test)
        if second.outcome != "passed":
            broken[test] = f"{second.outcome}: {second.why}"
    return broken


def _environment(folders: Iterable[Path]) -> dict[str, str]:
    # The package that the caller has imported, wherever that came from.
    package = Path(keras_fastgrad.__file__).parents[1]
    changed = {
        "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "tensorflow",
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [*folders, package])),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    return {**os.environ, **changed}
