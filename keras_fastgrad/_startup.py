"""What has to happen before TensorFlow is loaded.

TensorFlow reads its log level while it is imported, so a program that wants
silence has to ask first. Only our own command does: an ordinary
`import keras_fastgrad` leaves the environment alone.
"""

import os
import sys
from pathlib import Path

COMMAND = "keras-fastgrad"


def is_own_command() -> bool:
    """Tells whether this process is `keras-fastgrad` or `-m keras_fastgrad`."""
    if Path(sys.argv[0] if sys.argv else "").stem == COMMAND:
        return True
    command_line = sys.orig_argv
    return any(
        flag == "-m" and module.split(".")[0] == "keras_fastgrad"
        for flag, module in zip(command_line, command_line[1:])
    )


if is_own_command():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
