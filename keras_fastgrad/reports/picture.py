"""A picture as a page embeds it."""

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from keras_fastgrad.reports import palette

# Draws with a theme and the colour of each variant.
Draw: TypeAlias = Callable[[palette.Theme, Mapping[str, str]], bytes]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture for both colour schemes, ready to be embedded.

    Args:
        light: Data URI of the picture for a light page.
        dark: The same for a dark page.
        alt: What the picture shows, in words, for who cannot see it.
        caption: The line below it.
        notes: A numbered list below the caption.
    """

    light: str
    dark: str
    alt: str
    caption: str
    notes: tuple[str, ...] = ()


def picture(
    draw: Draw,
    variants: Sequence[str],
    alt: str,
    caption: str,
    notes: tuple[str, ...] = (),
) -> Picture:
    """Draws a picture in both colour schemes.

    Args:
        draw: Makes the SVG.
        variants: All variants of the page, which decide the colours.
        alt: What the picture shows, in words.
        caption: The line below it.
        notes: A numbered list below the caption. Defaults to none.

    Returns:
        The picture.
    """
    light, dark = (
        "data:image/svg+xml;base64,"
        + base64.b64encode(
            draw(theme, palette.colours(variants, theme))
        ).decode("ascii")
        for theme in (palette.LIGHT, palette.DARK)
    )
    return Picture(light, dark, alt, caption, notes)
