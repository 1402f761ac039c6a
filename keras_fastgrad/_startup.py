"""What has to happen before TensorFlow is loaded.

TensorFlow reads its log level while it is imported, so a program that wants
silence has to ask first. Only our own command does: an ordinary
`import keras_fastgrad` leaves the environment alone.
"""

import itertools
import os
import sys
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


if is_own_command():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
