"""Where the figures of a run come from: processor, memory, versions."""

import datetime
import importlib.metadata
import os
import platform
import shlex
import sys
from pathlib import Path

from keras_fastgrad import __version__
from keras_fastgrad.reports.records import Run

_PACKAGES = ("tensorflow", "keras", "numpy", "tf-keras", "torch")


def describe(peaks: dict[str, str] | None = None) -> Run:
    """The record that heads a run.

    Args:
        peaks: The machine's peaks in words, kept beside the versions.
    """
    versions = {
        "keras_fastgrad": __version__,
        "python": platform.python_version(),
    }
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return Run(
        command=shlex.join(["keras-fastgrad", *sys.argv[1:]]),
        date=datetime.datetime.now().astimezone().isoformat("T", "seconds"),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory_gb=_memory_gb(),
        versions=versions | (peaks or {}),
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return round(pages * size / 2**30, 1)
