"""The blank picture, its text, and how it becomes SVG.

Figures are made without pyplot, so nothing outlives a call.
"""

import io
from typing import Any

from keras_fastgrad.reports.palette import Theme

WIDTH = 4.6  # inches: on a phone's 350 pixels the text is 10 pixels high
TEXT_SIZE = 9.5
_LONGEST_LABEL = 46


def canvas(height: float, theme: Theme) -> tuple[Any, Any]:
    """A figure of `height` inches and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(colors=theme.ink, labelsize=9, length=3)
    for side in (axes.xaxis, axes.yaxis):
        side.label.set(color=theme.ink, fontsize=TEXT_SIZE, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.ink)
    axes.set_axisbelow(True)
    return figure, axes


def write(axes: Any, x: float, y: float, text: str, va: str) -> None:
    """Writes a name at a place, never reading it as mathematics."""
    axes.text(
        x,
        y,
        plain(text),
        va=va,
        fontsize=TEXT_SIZE,
        color=axes.xaxis.label.get_color(),
        parse_math=False,
    )


def plain(text: str) -> str:
    """A name cut to length, in letters that the picture's font has."""
    letters = "".join(
        letter if letter.isprintable() and letter < "\u0250" else "?"
        for letter in text
    )
    if len(letters) <= _LONGEST_LABEL:
        return letters
    return letters[: _LONGEST_LABEL - 3] + "..."


def svg(figure: Any) -> bytes:
    """The figure as SVG, on a transparent ground."""
    import matplotlib

    file = io.BytesIO()
    # A fixed salt and no date: the same run gives the same page.
    with matplotlib.rc_context({"svg.hashsalt": "keras_fastgrad"}):
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None},
        )
    return file.getvalue()
