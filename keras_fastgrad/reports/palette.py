"""Colours of the pictures, on a light page and on a dark one.

The hues are Okabe and Ito's, which stay apart for colour-blind readers; the
dark set is lightened for contrast. Stock Keras is grey.
"""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours for one background.

    Args:
        ground: What the pictures lie on.
        ink: Text and axes.
        faint: Grid and secondary lines.
        fixed: The colour of each variant that every run knows.
        others: Colours for strategies spelled by the user, in turn.
    """

    ground: str
    ink: str
    faint: str
    fixed: dict[str, str]
    others: tuple[str, ...]


LIGHT = Theme(
    ground="#ffffff",
    ink="#1f2328",
    faint="#c4c9d0",
    fixed={
        "keras": "#8b929c",
        "keras-best": "#4a5059",
        "fastgrad-exact": "#0072b2",
        "fastgrad-fast": "#d55e00",
        "tf-keras": "#009e73",
        "torch": "#b4568a",
    },
    others=("#e69f00", "#56b4e9", "#7a6a00", "#8a63d2"),
)
DARK = Theme(
    ground="#181c22",
    ink="#e3e6ea",
    faint="#4b525c",
    fixed={
        "keras": "#8d96a1",
        "keras-best": "#cdd3da",
        "fastgrad-exact": "#4fa8e0",
        "fastgrad-fast": "#f2843f",
        "tf-keras": "#2cc39a",
        "torch": "#dc8fb9",
    },
    others=("#f0b93a", "#8fd0f5", "#c9b84a", "#b79cf0"),
)


def colours(variants: Iterable[str], theme: Theme) -> dict[str, str]:
    """Gives each variant one colour, the same in every picture of a page.

    Example:
    >>> colours(["keras", "jit_compile=True"], LIGHT)
    {'keras': '#8b929c', 'jit_compile=True': '#e69f00'}

    Args:
        variants: The variants of a run, in the order of their appearance.
        theme: Colours to take from.

    Returns:
        The colour of each variant.
    """
    found: dict[str, str] = {}
    spelled = 0
    for variant in variants:
        if variant in found:
            continue
        if variant in theme.fixed:
            found[variant] = theme.fixed[variant]
        else:
            found[variant] = theme.others[spelled % len(theme.others)]
            spelled += 1
    return found
