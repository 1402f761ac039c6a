"""What has to happen while TensorFlow is loaded.

TensorFlow reads its log level, and prints its first lines, while it is
imported, so a program that wants silence has to ask before. Only our own
command does: an ordinary `import keras_fastgrad` leaves the environment and
the standard error stream alone.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

COMMAND = "keras-fastgrad"


def is_own_command() -> bool:
    """Tells whether this process is `keras-fastgrad` or `-m keras_fastgrad`."""
    if Path(sys.argv[0] if sys.argv else "").stem == COMMAND:
        return True
    return any(
        flag == "-m" and module.split(".")[0] == "keras_fastgrad"
        for flag, module in itertools.pairwise(sys.orig_argv)
    )


@contextlib.contextmanager
def without_native_stderr() -> Iterator[None]:
    """Drops what native code prints; Python's own errors are still shown."""
    sys.stderr.flush()
    shown = os.dup(2)
    python_stderr, sys.stderr = sys.stderr, os.fdopen(os.dup(shown), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(shown, 2)
        sys.stderr.close()
        sys.stderr = python_stderr
        os.close(nowhere)
        os.close(shown)


if is_own_command():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with without_native_stderr():
        import keras  # noqa: F401
