"""The process that measures one variant of one workload once.

Its last line is the record as JSON. `python -m keras_fastgrad.bench.worker`
with the words of a row's command measures that row again.
"""

import dataclasses
import json
import logging
import resource
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import absl.logging
import numpy as np
import tensorflow as tf

from keras_fastgrad.bench import correctness, training
from keras_fastgrad.bench.correctness import Reference
from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.stopwatch import step_ms, step_times
from keras_fastgrad.bench.training import Trained
from keras_fastgrad.bench.workloads import Workload, find
from keras_fastgrad.reports.records import Row


def measure(job: Job) -> Row:
    """Trains, compares with the reference, and sums it up.

    Args:
        job: What to measure.

    Returns:
        The row.

    Raises:
        ValueError: If the workload or the setting is not known.
        ImportError: If the job's library is not installed.
    """
    workload = find(job.workload, job.size)
    if job.engine == "torch":
        from keras_fastgrad.bench.peers import torch_training

        trained = torch_training.train(job, workload)
    else:
        trained = training.train(job, workload)
    peak = peak_mb()
    if job.save_reference:
        correctness.save(
            Path(job.save_reference),
            Reference(
                _all_steps(job, workload), trained.loss, trained.weights or []
            ),
        )
    return _judged(job, _row(job, workload, trained, peak), workload, trained)


def peak_mb() -> float:
    """The largest resident memory of this process so far, in MiB.

    `ru_maxrss` of a process starts at what its parent had when it was forked,
    so Linux's own figure for this program is taken where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _row(job: Job, workload: Workload, trained: Trained, peak: float) -> Row:
    times = step_times(trained.executions)
    return Row(
        workload=job.workload,
        variant=job.variant,
        turn=job.turn,
        strategy=trained.strategy,
        steps=times.steps,
        step_ms_p20=times.percentile(20),
        step_ms_p50=times.percentile(50),
        step_ms_p80=times.percentile(80),
        samples_per_second=times.steps
        * workload.batch_size
        / times.timed_seconds,
        compile_seconds=trained.compile_seconds,
        peak_mb=peak,
        final_loss=trained.loss,
        command=job.command(),
        tolerance=_tolerance(job),
        note=_notes(job, trained),
        step_ms=step_ms(trained.executions),
        switches=trained.switches,
    )


def _judged(job: Job, row: Row, workload: Workload, trained: Trained) -> Row:
    reference = None
    if job.reference and Path(job.reference).exists():
        reference = correctness.load(Path(job.reference))
        if reference.steps != _all_steps(job, workload):
            reference = None
    difference = None
    if reference is not None and trained.weights is not None:
        difference = correctness.largest_difference(
            trained.weights, reference.weights
        )
    # Another layout starts from other weights: its loss proves nothing.
    compared = reference if trained.weights is not None else None
    word = correctness.verdict(
        row.final_loss,
        compared.loss if compared else None,
        _tolerance(job),
    )
    if job.variant == "keras" and word != "wrong":
        word = "reference"
    return dataclasses.replace(
        row, max_weight_difference=difference, verdict=word
    )


def _tolerance(job: Job) -> float:
    if job.tolerance is not None:
        return job.tolerance
    return correctness.tolerance_of(job.setting)


def _notes(job: Job, trained: Trained) -> str:
    notes = [trained.note]
    if _tolerance(job) > correctness.tolerance_of(job.setting):
        notes.append(
            f"chaotic: may differ by {100 * _tolerance(job):.2g} %, twice "
            "what stock Keras does when its weights are moved by 3e-7"
        )
    return "; ".join(filter(None, notes))


def _all_steps(job: Job, workload: Workload) -> int:
    return job.warmup + training.schedule(workload, job.steps).steps


def main(words: Sequence[str] | None = None) -> None:
    """Measures what the command line says and prints the row.

    Args:
        words: The words of the command line. Defaults to the process's.
    """
    job = Job.from_arguments(words)
    # The last line is for a program; libraries may talk before it only.
    tf.get_logger().setLevel(logging.ERROR)
    absl.logging.set_verbosity(absl.logging.ERROR)
    np.seterr(all="ignore")
    warnings.filterwarnings("ignore", "Converting sparse IndexedSlices")
    print(json.dumps(dataclasses.asdict(measure(job))), flush=True)


if __name__ == "__main__":
    main()
