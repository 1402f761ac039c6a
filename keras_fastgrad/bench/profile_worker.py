"""The process that profiles one workload under one engine.

`python -m keras_fastgrad.bench.profile_worker WORKLOAD ENGINE SETTING` prints
the entries as JSON on its last line.
"""

import collections
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.kits import kit_of
from keras_fastgrad.bench.training import built, first_batches
from keras_fastgrad.bench.workloads import find
from keras_fastgrad.strategy import Strategy

_PICOSECONDS = 1e9  # in a millisecond


class Event(NamedTuple):
    """Something a thread did, in any one unit of time."""

    start: float
    duration: float
    name: str


def self_times(events: Iterable[Event]) -> dict[str, tuple[int, float]]:
    """How often each name occurs, and its time without what is inside it.

    Example:
    >>> self_times([Event(0, 10, "outer"), Event(2, 3, "inner")])
    {'outer': (1, 7), 'inner': (1, 3)}

    Args:
        events: The events of one thread, nested or apart.
    """
    counts: collections.Counter[str] = collections.Counter()
    times: collections.defaultdict[str, float] = collections.defaultdict(int)
    open_events: list[Event] = []
    for event in sorted(events, key=lambda e: (e.start, -e.duration)):
        while open_events and (
            open_events[-1].start + open_events[-1].duration <= event.start
        ):
            open_events.pop()
        if open_events:
            times[open_events[-1].name] -= event.duration
        counts[event.name] += 1
        times[event.name] += event.duration
        open_events.append(event)
    return {name: (counts[name], times[name]) for name in counts}


def op_of(name: str) -> str | None:
    """The kind of op in a profiler's event name, or `None` for another.

    Example:
    >>> op_of("sequential/dense/MatMul:MatMul"), op_of("Executor::Process#1")
    ('MatMul', None)
    """
    node, _, op = name.partition("#")[0].rpartition(":")
    return op if node and op.isidentifier() and node[-1] != ":" else None


def profiled(job: Job, steps: int) -> list[dict[str, Any]]:
    """Profiles `steps` steps after as many for warming up.

    Returns:
        For each kind of op `op`, `count` and `self_ms` of one step, and its
        `share` of all ops, largest first.
    """
    # Imported here: the module moves between releases of TensorFlow.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    workload = find(job.workload)
    model = built(
        job, workload, kit_of(job.engine), Strategy.parse(job.setting)
    )
    data = workload.make_data(steps * workload.batch_size)
    arguments = first_batches(data, workload.batch_size, steps)
    model.fit(**arguments, verbose=0, shuffle=False)
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)
        with tf.profiler.experimental.Profile(folder, options):
            model.fit(**arguments, verbose=0, shuffle=False)
        space = xplane_pb2.XSpace()
        for path in Path(folder).rglob("*.xplane.pb"):
            space.MergeFromString(path.read_bytes())
    return _entries(space, steps)


def _entries(space: Any, steps: int) -> list[dict[str, Any]]:
    counts: collections.Counter[str] = collections.Counter()
    times: collections.defaultdict[str, float] = collections.defaultdict(float)
    for plane in space.planes:
        if "CPU" not in plane.name:
            continue
        names = plane.event_metadata
        for line in plane.lines:
            events = [
                Event(
                    event.offset_ps,
                    event.duration_ps,
                    names[event.metadata_id].name,
                )
                for event in line.events
            ]
            for name, (count, duration) in self_times(events).items():
                op = op_of(name)
                if op:
                    counts[op] += count
                    times[op] += duration
    total = sum(times.values()) or 1.0
    return [
        {
            "op": op,
            "count": counts[op] / steps,
            "self_ms": time / _PICOSECONDS / steps,
            "share": time / total,
        }
        for op, time in sorted(times.items(), key=lambda item: -item[1])
    ]


def main() -> None:
    """Profiles what the command line names and prints the entries."""
    name, engine, setting = sys.argv[1:]
    job = Job(name, engine, engine, setting)
    steps = 64 if find(name).is_short else 5
    print(json.dumps(profiled(job, steps)), flush=True)


if __name__ == "__main__":
    main()
