"""A pytest plugin: writes down how each test ended and what trained in it.

It knows nothing of keras_fastgrad, so a run with it alone is a stock run.
"""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

_outcomes: dict[str, dict[str, Any]] = {}
_running: list[str] = []


def note(trainer: str) -> None:
    """Notes that the train function of `trainer` is used by this test."""
    if trainer not in _running:
        _running.append(trainer)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", required=True, help="JSON file to write")


def pytest_configure(config: pytest.Config) -> None:
    stock = TensorFlowTrainer._make_function

    @functools.wraps(stock)
    def noted(self: Any, step_function: Any) -> Any:
        if step_function == self.train_step:
            note("keras")
        return stock(self, step_function)

    TensorFlowTrainer._make_function = noted


def pytest_runtest_logstart() -> None:
    _running.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    report = yield
    test = "::".join(report.nodeid.split("::")[-2:])
    entry = _outcomes.setdefault(
        test, {"outcome": "passed", "trained_by": [], "why": ""}
    )
    if report.outcome != "passed" and entry["outcome"] != "failed":
        entry.update(outcome=report.outcome, why=report.longreprtext)
    entry["trained_by"] = list(_running)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = Path(session.config.getoption("--outcomes"))
    path.write_text(json.dumps(_outcomes, indent=1))
