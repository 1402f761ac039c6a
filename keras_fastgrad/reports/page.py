"""Writes a run as one HTML page that needs nothing beside it."""

from collections.abc import Sequence
from pathlib import Path

from keras_fastgrad.reports.records import Record
from keras_fastgrad.reports.view import page_view


def write_page(records: Sequence[Record], path: Path) -> None:
    """Writes the page of a run.

    The page is one file: its pictures are embedded, it runs no script and
    loads nothing. It needs Jinja2 and matplotlib (extra `report`).

    Args:
        records: All records of a run, in order, as `records.read` gives them.
        path: The file to write. Its folder is made where needed.

    Raises:
        ImportError: If Jinja2 or matplotlib is not installed.
        OSError: If the file cannot be written.
    """
    text = render(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def render(records: Sequence[Record]) -> str:
    """The page of a run as HTML.

    Args:
        records: All records of a run, in order.

    Returns:
        The HTML.

    Raises:
        ImportError: If Jinja2 or matplotlib is not installed.
    """
    import jinja2
    import markupsafe

    def breakable(name: str) -> markupsafe.Markup:
        # A strategy is one long word; a phone has to break it somewhere.
        text = markupsafe.escape(name)
        return text.replace("_", markupsafe.Markup("_<wbr>"))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("keras_fastgrad", "reports"),
        # Always on: a choice by file name would not know `.jinja`.
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    template = environment.get_template("page.html.jinja")
    return template.render(page=page_view(records))
