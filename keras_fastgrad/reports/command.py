"""The command `keras-fastgrad report`."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from keras_fastgrad.reports import records
from keras_fastgrad.reports.page import write_page


def add_parser(commands: Any) -> None:
    """Adds the command to those of `keras-fastgrad`.

    Args:
        commands: What `argparse.ArgumentParser.add_subparsers` gave.
    """
    parser = commands.add_parser(
        "report",
        help="make an HTML page from the rows of a bench run",
        description="Makes one self-contained HTML page from a bench run.",
    )
    parser.add_argument(
        "rows",
        type=Path,
        metavar="RUN.jsonl",
        help="the file that `keras-fastgrad bench` wrote",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PAGE.html",
        help="where to write the page; default: beside the rows, as .html",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Writes the page.

    Args:
        options: `rows`, the file to read, and `out`, the page or `None`.

    Returns:
        The exit code: 0, or 2 where no page was written.
    """
    source: Path = options.rows
    target: Path = options.out or source.with_suffix(".html")
    try:
        _require_extra()
        if target.resolve() == source.resolve():
            raise ValueError(
                "The page must not replace the rows it is made from. "
                f"Received: {target}. Name another file with --out."
            )
        write_page(_read(source), target)
    except (ValueError, ImportError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(
            f"{error}. The rows must be readable and the page's folder "
            "writable; name another page with --out."
        )
    print(f"Wrote {target}")
    return 0


def _refuse(reason: str) -> int:
    print(f"keras-fastgrad report: {reason}", file=sys.stderr)
    return 2


def _require_extra() -> None:
    for name in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"The page needs Jinja2 and matplotlib; importing {name} "
                f"failed ({error}). Install the extra `report`, or run "
                "`pip install jinja2 matplotlib`."
            ) from error


def _read(source: Path) -> list[records.Record]:
    if source.is_file():
        state = "has no record in it"
        try:
            found = records.read(source)
        except UnicodeDecodeError:
            found, state = [], "is not text"
        if found:
            return found
    else:
        state = "is a folder" if source.is_dir() else "does not exist"
    raise ValueError(
        "A file with the rows of a bench run is required. Received: "
        f"{source}, which {state}. Make one with `keras-fastgrad bench`."
    )
