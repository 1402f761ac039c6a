"""The training jobs that the bench measures, by name."""

from keras_fastgrad.bench.workloads.dense import mlp
from keras_fastgrad.bench.workloads.input_bound import PIPELINES, input_bound
from keras_fastgrad.bench.workloads.multitask import (
    multitask,
    multitask_pcgrad,
)
from keras_fastgrad.bench.workloads.recommender import recsys200m, recsys_pool
from keras_fastgrad.bench.workloads.recurrent import deep, narrow, wide
from keras_fastgrad.bench.workloads.text import lm, lm_wide
from keras_fastgrad.bench.workloads.vision import cnn, resnet50, vit
from keras_fastgrad.bench.workloads.workload import Data, Scale, Workload

__all__ = ["WORKLOADS", "Data", "Scale", "Workload", "find", "growth"]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        mlp(),
        cnn(),
        resnet50(),
        vit(),
        lm(),
        lm_wide(),
        deep("LSTM"),
        deep("GRU"),
        wide("LSTM"),
        wide("GRU"),
        narrow("LSTM"),
        narrow("GRU"),
        recsys200m(),
        recsys_pool(),
        multitask(),
        multitask_pcgrad(),
        input_bound(),
    )
}

# For the article's row on input pipelines; not measured by a plain bench.
_PIPELINES = {
    workload.name: workload for workload in map(input_bound, PIPELINES)
}


def find(name: str, size: int | None = None) -> Workload:
    """The workload of that name.

    Args:
        name: A name of the table, as `bench --help` lists it.
        size: Size along the workload's own dimension of growth. Defaults to
            the size it has.

    Raises:
        ValueError: If there is no such workload, or it cannot be resized.
    """
    workload = (WORKLOADS | _PIPELINES).get(name)
    if workload is None:
        raise ValueError(
            f"No workload has this name. Received: {name!r}. Choose from "
            f"{', '.join(WORKLOADS)}."
        )
    return workload if size is None else growth(name).resized(size)


def growth(name: str) -> Scale:
    """The dimension along which the workload of that name can grow.

    Raises:
        ValueError: If there is no such workload, or it cannot grow.
    """
    scale = find(name).scale
    if scale is None:
        names = (w.name for w in WORKLOADS.values() if w.scale is not None)
        raise ValueError(
            f"Workload {name!r} has no dimension to grow along. Choose from "
            f"{', '.join(names)}."
        )
    return scale
