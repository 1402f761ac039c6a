"""Puts profiles, growth and the article's figures into a page's words."""

import dataclasses
import statistics
from collections.abc import Sequence

from keras_fastgrad.reports import cost_pictures, numbers
from keras_fastgrad.reports.picture import Picture
from keras_fastgrad.reports.records import ArticleRow, ProfileEntry, ScalePoint


@dataclasses.dataclass(frozen=True)
class ProfileView:
    """Self times of one workload.

    Args:
        workload: Its name.
        variants: The variants profiled.
        ops: For each kind of op, for each variant: milliseconds, count, share.
        totals: For each variant, the sum of milliseconds.
        picture: The bars.
    """

    workload: str
    variants: list[str]
    ops: list[tuple[str, list[tuple[str, str, str]]]]
    totals: list[str]
    picture: Picture


@dataclasses.dataclass(frozen=True)
class ScaleView:
    """Cost of one workload against one of its dimensions.

    Args:
        workload: Its name.
        dimension: What was grown.
        variants: The variants measured.
        sizes: For each size, for each variant: milliseconds, MiB.
        pictures: Time and memory.
    """

    workload: str
    dimension: str
    variants: list[str]
    sizes: list[tuple[str, list[tuple[str, str]]]]
    pictures: list[Picture]


@dataclasses.dataclass(frozen=True)
class ArticleView:
    """One figure of the article and the same measured here, as text."""

    name: str
    unit: str
    theirs: tuple[str, str, str]
    ours: tuple[str, str, str]
    note: str


def profiles(
    entries: Sequence[ProfileEntry], variants: Sequence[str]
) -> list[ProfileView]:
    """The profile of each workload, the longest ops first.

    Args:
        entries: All entries of a file.
        variants: All variants of the page, which decide the colours.

    Returns:
        One view for each workload.
    """
    return [
        _profile(
            workload,
            [entry for entry in entries if entry.workload == workload],
            variants,
        )
        for workload in dict.fromkeys(entry.workload for entry in entries)
    ]


def scales(
    points: Sequence[ScalePoint], variants: Sequence[str]
) -> list[ScaleView]:
    """The growth of each dimension of each workload.

    Args:
        points: All points of a file.
        variants: All variants of the page, which decide the colours.

    Returns:
        One view for each pair of workload and dimension.
    """
    grown: dict[tuple[str, str], list[ScalePoint]] = {}
    for point in points:
        grown.setdefault((point.workload, point.dimension), []).append(point)
    return [
        _scale(workload, dimension, own, variants)
        for (workload, dimension), own in grown.items()
    ]


def article(rows: Sequence[ArticleRow]) -> list[ArticleView]:
    """The article's figures beside those measured here.

    Args:
        rows: All such rows of a file.

    Returns:
        One view for each row.
    """
    return [
        ArticleView(
            row.name,
            row.unit,
            (
                numbers.significant(row.theirs_before),
                numbers.significant(row.theirs_after),
                numbers.share(row.theirs_saved),
            ),
            (
                numbers.significant(row.ours_before),
                numbers.significant(row.ours_after),
                numbers.share(row.ours_saved),
            ),
            row.note,
        )
        for row in rows
    ]


def _profile(
    workload: str, entries: Sequence[ProfileEntry], variants: Sequence[str]
) -> ProfileView:
    # A later profile of the same variant replaces an earlier one.
    latest = {(entry.op, entry.variant): entry for entry in entries}
    names = list(dict.fromkeys(entry.variant for entry in entries))
    longest: dict[str, float] = {}
    for (op, _), entry in latest.items():
        longest[op] = max(longest.get(op, 0.0), entry.self_ms)
    totals = [
        sum(entry.self_ms for (_, name), entry in latest.items() if name == one)
        for one in names
    ]
    return ProfileView(
        workload,
        names,
        [
            (op, [_spent(latest.get((op, name))) for name in names])
            for op in sorted(longest, key=lambda op: -longest[op])
        ],
        [numbers.significant(total) for total in totals],
        cost_pictures.profile_picture(list(latest.values()), variants),
    )


def _spent(entry: ProfileEntry | None) -> tuple[str, str, str]:
    if entry is None:
        return (numbers.NOTHING,) * 3
    return (
        numbers.significant(entry.self_ms),
        f"{entry.count:,.3g}" if entry.count < 1000 else f"{entry.count:,.0f}",
        numbers.share(entry.share),
    )


def _scale(
    workload: str,
    dimension: str,
    points: Sequence[ScalePoint],
    variants: Sequence[str],
) -> ScaleView:
    names = list(dict.fromkeys(point.variant for point in points))
    return ScaleView(
        workload,
        dimension,
        names,
        [
            (f"{size:,}", [_cost(points, size, name) for name in names])
            for size in sorted({point.size for point in points})
        ],
        cost_pictures.scale_pictures(points, variants),
    )


def _cost(
    points: Sequence[ScalePoint], size: int, variant: str
) -> tuple[str, str]:
    own = [
        point
        for point in points
        if (point.size, point.variant) == (size, variant)
    ]
    if not own:
        return numbers.NOTHING, numbers.NOTHING
    return (
        numbers.significant(statistics.median(p.step_ms_p50 for p in own)),
        numbers.significant(max(p.peak_mb for p in own)),
    )
