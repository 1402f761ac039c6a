"""Puts the records of a run into the words and groups that a page shows."""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from keras_fastgrad.reports import cost_view, numbers, ratios
from keras_fastgrad.reports import workload_pictures as pictures
from keras_fastgrad.reports.picture import Picture
from keras_fastgrad.reports.ratios import RatioSummary
from keras_fastgrad.reports.records import (
    ArticleRow,
    Missing,
    ProfileEntry,
    Record,
    Row,
    Run,
    ScalePoint,
    of_kind,
)
from keras_fastgrad.reports.summary import summary

_VERDICTS = {
    "reference": "reference",
    "right": "\u2713 right",
    "wrong": "\u2717 wrong",
    "unchecked": "not compared",
}

# What the bench names as the workload of a figure it could not measure.
_ARTICLE = "article"

_Item = TypeVar("_Item", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class RowView:
    """One variant of one workload; its figures as text."""

    row: Row
    p50: str
    spread: str
    ratio: str
    ratio_spread: str
    memory_ratio: str
    samples: str
    compile: str
    peak: str
    loss: str
    difference: str
    tolerance: str
    verdict: str


@dataclasses.dataclass(frozen=True)
class WorkloadView:
    """One workload: its rows, what is missing, its pictures."""

    anchor: str
    name: str
    rows: list[RowView]
    missing: list[Missing]
    pictures: list[Picture]

    @property
    def by_variant(self) -> dict[str, RowView]:
        """The rows by the name of their variant."""
        return {view.row.variant: view for view in self.rows}


@dataclasses.dataclass(frozen=True)
class PageView:
    """All that a page shows.

    Args:
        runs: The runs that wrote the file.
        is_mixed: Whether they ran on different machines or versions.
        summary: The verdict, in sentences.
        variants: Those measured beside stock Keras, in order.
        workloads: One for each workload measured or missing.
        profiles: One for each workload profiled.
        scales: One for each dimension of a workload that was grown.
        article: The article's figures beside those measured here.
        article_missing: Figures of the article that could not be measured.
    """

    runs: list[Run]
    is_mixed: bool
    summary: list[str]
    variants: list[str]
    workloads: list[WorkloadView]
    profiles: list[cost_view.ProfileView]
    scales: list[cost_view.ScaleView]
    article: list[cost_view.ArticleView]
    article_missing: list[Missing]


def page_view(records: Sequence[Record]) -> PageView:
    """Works out everything that a page shows.

    Args:
        records: All records of a file, in order.

    Returns:
        The page in plain words and finished pictures.
    """
    turns = ratios.with_distinct_turns(records)
    rows = ratios.medians(turns)
    speed, memory = ratios.ratios(turns), ratios.memory_ratios(turns)
    profile = of_kind(records, ProfileEntry)
    scale = of_kind(records, ScalePoint)
    variants = _unique(record.variant for record in (*rows, *profile, *scale))
    missing = _unique(of_kind(records, Missing))
    names = _unique(entry.workload for entry in (*rows, *missing))
    runs = of_kind(records, Run)
    return PageView(
        runs=runs,
        is_mixed=len({_machine(run) for run in runs}) > 1,
        summary=summary(rows, speed),
        variants=_unique(row.variant for row in rows if row.variant != "keras"),
        workloads=[
            WorkloadView(
                f"workload-{at}",
                name,
                [_row(row, speed, memory) for row in own],
                [record for record in missing if record.workload == name],
                _pictures(own, speed, variants),
            )
            for at, name in enumerate(names)
            if name != _ARTICLE
            for own in [[row for row in rows if row.workload == name]]
        ],
        profiles=cost_view.profiles(profile, variants),
        scales=cost_view.scales(scale, variants),
        article=cost_view.article(of_kind(records, ArticleRow)),
        article_missing=[gap for gap in missing if gap.workload == _ARTICLE],
    )


def _pictures(
    rows: Sequence[Row],
    speed: Mapping[ratios.Key, RatioSummary | None],
    variants: Sequence[str],
) -> list[Picture]:
    own = {row.variant: speed[row.workload, row.variant] for row in rows}
    drawn = (
        pictures.ratio_picture(rows, own, variants),
        pictures.memory_picture(rows, variants),
        pictures.steps_picture(rows, variants),
    )
    return [picture for picture in drawn if picture is not None]


def _row(
    row: Row,
    speed: Mapping[ratios.Key, RatioSummary | None],
    memory: Mapping[ratios.Key, RatioSummary | None],
) -> RowView:
    faster = speed[row.workload, row.variant]
    smaller = memory[row.workload, row.variant]
    is_reference = row.variant == "keras"
    spread = ""
    if faster and faster.turns > 1 and not is_reference:
        spread = numbers.between(faster.low, faster.high)
    return RowView(
        row=row,
        p50=numbers.significant(row.step_ms_p50),
        spread=numbers.between(row.step_ms_p20, row.step_ms_p80),
        ratio=_times(faster),
        ratio_spread=spread,
        memory_ratio="" if is_reference else _times(smaller),
        samples=numbers.significant(row.samples_per_second),
        compile=numbers.significant(row.compile_seconds, 2),
        peak=numbers.significant(row.peak_mb),
        loss=numbers.loss(row.final_loss),
        difference=numbers.difference(row.max_weight_difference),
        tolerance=(
            "" if row.tolerance is None else f"{100 * row.tolerance:.3g} %"
        ),
        verdict=_VERDICTS.get(row.verdict, row.verdict),
    )


def _times(ratio: RatioSummary | None) -> str:
    return numbers.times(ratio.median) if ratio else numbers.NOTHING


def _machine(run: Run) -> tuple[str, int, tuple[tuple[str, str], ...]]:
    return run.processor, run.cores, tuple(sorted(run.versions.items()))


def _unique(items: Iterable[_Item]) -> list[_Item]:
    return list(dict.fromkeys(items))
