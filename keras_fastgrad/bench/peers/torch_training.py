"""Trains a workload with torch, as a torch user would write it."""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import torch

from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.peers import torch_models
from keras_fastgrad.bench.peers.torch_models import Built
from keras_fastgrad.bench.stopwatch import (
    Stopwatch,
    compile_seconds,
    step_times,
)
from keras_fastgrad.bench.training import Trained, schedule
from keras_fastgrad.bench.workloads import Workload
from keras_fastgrad.bench.workloads.workload import SEED

_ADAM: dict[str, Any] = {"lr": 1e-3, "eps": 1e-7}  # Keras's numbers
_MEMORY = "peak memory includes TensorFlow, which this process loads too"
_LAZY = (
    "the table is trained by SparseAdam, which leaves rows alone that no "
    "batch names: another training than Keras's"
)


def train(job: Job, workload: Workload) -> Trained:
    """Trains with torch on the same data.

    Args:
        job: What to measure; `setting` is `"eager"`, or `"bfloat16"`,
            `"compiled"` or both joined by a comma.
        workload: Its workload, resized where the job says so.

    Raises:
        ValueError: If the setting is not known, or there is no torch version
            of the workload.
    """
    modes = job.setting.replace(" ", "").split(",")
    if not set(modes) <= {"default", "eager", "bfloat16", "compiled"}:
        raise ValueError(
            "A torch setting is 'eager', 'bfloat16', 'compiled' or "
            f"'bfloat16,compiled'. Received: {job.setting!r}."
        )
    torch.manual_seed(SEED)
    plan = schedule(workload, job.steps)
    batches = max(plan.steps_per_epoch, job.warmup)
    data = workload.make_data(batches * workload.batch_size)
    built = torch_models.build(workload, data)
    step = _training_step(built, modes)

    def epoch(steps: int, watch: Stopwatch) -> float:
        watch.epoch_begins()
        total = 0.0
        for at in range(steps):
            watch.start()
            rows = slice(at * workload.batch_size, None)
            x, y = _tensors(data, rows, workload.batch_size)
            total += step(x, y)
            watch.stop(1)
        return total / steps

    began = time.perf_counter()
    warmup, watch = Stopwatch(), Stopwatch()
    epoch(job.warmup, warmup)
    for _ in range(plan.epochs):
        loss = epoch(plan.steps_per_epoch, watch)
    return Trained(
        strategy=job.setting,
        executions=watch.executions,
        compile_seconds=compile_seconds(
            began, warmup, step_times(watch.executions)
        ),
        loss=loss,
        weights=None,
        note=_MEMORY + (f"; {_LAZY}" if built.is_lazy else ""),
    )


def _training_step(
    built: Built, modes: list[str]
) -> Callable[[Any, Any], float]:
    model = torch.compile(built.model) if "compiled" in modes else built.model
    optimizers = _optimizers(built)

    def step(x: Any, y: Any) -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in modes):
            outputs = model(x)
        loss = built.loss(outputs, y)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()

    return step


def _optimizers(built: Built) -> list[torch.optim.Optimizer]:
    sparse: list[Any] = [
        module.weight
        for module in built.model.modules()
        if getattr(module, "sparse", False)
    ]
    tables = {id(weight) for weight in sparse}
    dense = [p for p in built.model.parameters() if id(p) not in tables]
    make = torch.optim.AdamW if built.decays else torch.optim.Adam
    more: dict[str, Any] = {"weight_decay": 0.004} if built.decays else {}
    optimizers: list[torch.optim.Optimizer] = [
        make(dense, fused=True, **_ADAM, **more)
    ]
    if sparse:
        optimizers.append(torch.optim.SparseAdam(sparse, **_ADAM))
    return optimizers


def _tensors(data: Any, rows: slice, batch_size: int) -> tuple[Any, Any]:
    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array[rows][:batch_size])

    return keras.tree.map_structure(tensor, tuple(data))
