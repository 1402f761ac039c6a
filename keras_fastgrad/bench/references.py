"""Which numbers of stock Keras a variant is compared with, and how closely.

Where a gradient is sparse, stock Keras squares and clips the parts of an id
that repeats. This package sums them first, so its reference is stock Keras
given the same gradient made dense.

Training can be chaotic: a difference of one rounding may grow to percents of
the loss in a few steps. So stock Keras also runs with weights moved by 3e-7,
and no variant is called wrong for lying within twice what that does.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from keras_fastgrad.bench.correctness import tolerance_of
from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.variants import Variant
from keras_fastgrad.bench.workloads import Workload
from keras_fastgrad.reports.records import Missing, Row
from keras_fastgrad.strategy import Strategy, keeps_slices

STOCK, DENSE = "stock", "dense"
PERTURBATION = 3e-7


@dataclasses.dataclass(frozen=True)
class References:
    """The reference runs of one workload.

    Args:
        folder: Of the bench run; the numbers go below it.
        workload: The workload.
        steps: Steps that are timed, and so trained.
    """

    folder: Path
    workload: Workload
    steps: int

    def job(self, kind: str) -> Job:
        """The run of stock Keras that gives the numbers."""
        return Job(
            self.workload.name,
            "keras",
            "keras",
            steps=self.steps,
            save_reference=str(self._path(kind)),
            dense_gradients=kind == DENSE,
        )

    def perturbed(self, kind: str) -> Job:
        """The same run from weights moved a little."""
        return dataclasses.replace(
            self.job(kind), save_reference=None, perturbation=PERTURBATION
        )

    def compared(self, job: Job, variant: Variant, spread: float) -> Job:
        """The job with what it is compared with, where it can be.

        Args:
            job: A job of `variant`.
            variant: Its variant.
            spread: What `spread` gave.
        """
        kind = kind_of(self.workload, variant, job.setting)
        if kind is None:
            return job
        tolerance = max(tolerance_of(job.setting), 2 * spread)
        return dataclasses.replace(
            job,
            reference=str(self._path(kind)),
            tolerance=round(tolerance, 4),
        )

    def _path(self, kind: str) -> Path:
        name = f"{self.workload.name}-{kind}-{self.steps}.npz"
        return self.folder / "references" / name


def kind_of(workload: Workload, variant: Variant, setting: str) -> str | None:
    """The gradients of the reference, or `None` where there is none.

    Args:
        workload: The workload.
        variant: The variant. Peers lay out their weights in their own ways
            and start from others, so they are not compared.
        setting: What it is set to.
    """
    if variant.engine not in ("keras", "fastgrad"):
        return None
    if variant.engine == "keras" or not workload.has_embedding:
        return STOCK
    return STOCK if keeps_slices(Strategy.parse(setting)) else DENSE


def kinds(workload: Workload, variants: Sequence[Variant]) -> list[str]:
    """The references that the variants need, each once."""
    needed = {
        kind_of(workload, variant, setting)
        for variant in variants
        for setting in variant.settings(workload)
    }
    return sorted(kind for kind in needed if kind)


def spread(result: Row, moved: Row | Missing) -> float:
    """How far the loss moves, relative to itself, when the weights do.

    Args:
        result: The reference.
        moved: The same from weights moved a little.

    Returns:
        The relative difference; 0 where it could not be measured.
    """
    if isinstance(moved, Missing) or not result.final_loss:
        return 0.0
    gap = abs(moved.final_loss - result.final_loss) / abs(result.final_loss)
    return gap if math.isfinite(gap) else 0.0
