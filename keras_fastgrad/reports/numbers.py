"""Writes numbers as a reader of a table wants them."""

import math

NOTHING = "\u2013"


def significant(value: float | None, digits: int = 3) -> str:
    """Writes a number with `digits` digits that count, and no exponent.

    Example:
    >>> significant(0.8312), significant(28.0), significant(12345.6)
    ('0.831', '28.0', '12,346')

    Args:
        value: The number. `None` and NaN are a dash.
        digits: How many digits to keep. Defaults to 3.

    Returns:
        The number as text.
    """
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "\u221e" if value > 0 else "\u2212\u221e"
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{min(max(decimals, 0), 9)}f}"


def loss(value: float) -> str:
    """Writes a loss; one that is not finite is named, not hidden.

    Example:
    >>> loss(2.30258), loss(float("nan"))
    ('2.3026', 'NaN')

    Args:
        value: The loss.

    Returns:
        The loss as text.
    """
    if math.isnan(value):
        return "NaN"
    return f"{value:.5g}" if math.isfinite(value) else significant(value)


def difference(value: float | None) -> str:
    """Writes a difference that spans many powers of ten.

    Example:
    >>> difference(3.14e-7), difference(0.0), difference(None)
    ('3.1e-07', '0', '\u2013')

    Args:
        value: The difference. `None` is a dash.

    Returns:
        The difference as text.
    """
    if value is None:
        return NOTHING
    return loss(value) if value == 0 or value != value else f"{value:.1e}"


def share(value: float | None) -> str:
    """Writes a share of 0 to 1 in percent.

    Example:
    >>> share(0.4831), share(None)
    ('48 %', '\u2013')

    Args:
        value: The share. `None` and NaN are a dash.

    Returns:
        The share as text.
    """
    if value is None or math.isnan(value):
        return NOTHING
    return f"{100 * value:.0f} %".replace("-", "\u2212")


def times(value: float) -> str:
    """Writes a ratio.

    Example:
    >>> times(2.864), times(12.3)
    ('2.86\u00d7', '12.3\u00d7')

    Args:
        value: The ratio.

    Returns:
        The ratio as text.
    """
    return f"{significant(value)}\u00d7"


def between(low: float, high: float) -> str:
    """Writes a range.

    Example:
    >>> between(2.7, 3.01)
    '2.70\u20133.01'

    Args:
        low: Its lower end.
        high: Its upper end.

    Returns:
        The range as text.
    """
    return f"{significant(low)}\u2013{significant(high)}"


def compact(value: float) -> str:
    """Writes a size in few letters.

    Example:
    >>> compact(20_000), compact(3_125_000), compact(0.5)
    ('20k', '3.12M', '0.5')

    Args:
        value: A number.

    Returns:
        The number with k, M or G for thousands, millions and milliards.
    """
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
