"""Starts worker processes and makes records of whatever becomes of them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from keras_fastgrad.bench.job import WORKER, Job
from keras_fastgrad.reports.records import Missing, Row

Launch: TypeAlias = Callable[[Job], Row | Missing]

_LINES_OF_ERROR = 3


def process(timeout: float) -> Launch:
    """A launcher that gives each job a process of its own.

    Args:
        timeout: Seconds after which a worker is ended.

    Returns:
        A function of a job that returns its row, or a `Missing` with the
        last lines of the worker's error.
    """

    def launch(job: Job) -> Row | Missing:
        try:
            output = run_module(WORKER, job.arguments(), timeout)
            return Row(**json.loads(output))
        except (RuntimeError, ValueError, TypeError) as error:
            return Missing(job.workload, job.variant, str(error))

    return launch


def run_module(module: str, arguments: Sequence[str], timeout: float) -> str:
    """Runs `python -m module` and returns the last line it prints.

    Args:
        module: The module's name.
        arguments: The words after it.
        timeout: Seconds after which it is ended.

    Raises:
        RuntimeError: If it fails, is ended or prints nothing; with the last
            lines of its error.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(
            f"ended after {timeout:g} s; allow more with --timeout"
        ) from error
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return lines[-1]
    raise RuntimeError(explained(done.returncode, done.stderr))


def explained(returncode: int, errors: str) -> str:
    """Why a worker failed, in words.

    Args:
        returncode: Its exit code, negative where a signal ended it.
        errors: What it wrote to standard error.
    """
    if returncode == -9:
        return "killed by the system (signal 9), most likely out of memory"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = " | ".join(lines[-_LINES_OF_ERROR:]) or "it printed nothing"
    return f"failed with exit code {returncode}: {last}"
