"""The command `keras-fastgrad`."""

import argparse
import logging
from collections.abc import Sequence

import absl.logging
import tensorflow as tf

from keras_fastgrad import __version__, demo
from keras_fastgrad.bench import command as bench
from keras_fastgrad.reports import command as report


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `keras-fastgrad`.

    Args:
        arguments: The words of the command line. Defaults to the process's.

    Raises:
        SystemExit: With 2 where the words are not understood.
    """
    parser = argparse.ArgumentParser(
        prog="keras-fastgrad",
        description="Faster training for Keras 3 on TensorFlow.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)
    for command in (demo, bench, report):
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    # Python's half of TensorFlow's chatter; `_startup` silences the other.
    tf.get_logger().setLevel(logging.ERROR)
    absl.logging.set_verbosity(absl.logging.ERROR)
    raise SystemExit(options.run(options))
