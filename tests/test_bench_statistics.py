import numpy as np
import pytest

from keras_fastgrad.bench.profile_worker import Event, op_of, self_times
from keras_fastgrad.bench.stopwatch import (
    Stopwatch,
    compile_seconds,
    step_ms,
    step_times,
)
from keras_fastgrad.bench.training import schedule
from keras_fastgrad.bench.workloads import WORKLOADS, find, growth


def watch_at(*times):
    return Stopwatch(iter(times).__next__)


def test_time_between_executions_counts():
    watch = watch_at(0.0, 1.0, 3.0)

    watch.start()
    watch.stop(steps=2)
    watch.start()  # asks no clock: the last end is this beginning
    watch.stop(steps=4)

    assert watch.executions == [(2, 1.0), (4, 2.0)]


def test_time_between_epochs_does_not_count():
    watch = watch_at(0.0, 1.0, 50.0, 51.0)

    for _ in range(2):
        watch.epoch_begins()
        watch.start()
        watch.stop(steps=1)

    assert watch.executions == [(1, 1.0), (1, 1.0)]


def test_percentiles_are_of_steps_not_of_executions():
    times = step_times([(32, 0.032), (32, 0.064), (1, 0.010)])

    assert times.steps == 65
    assert times.percentile(20) == pytest.approx(1.0)
    assert times.percentile(50) == pytest.approx(2.0)
    assert times.percentile(98) == pytest.approx(2.0)
    assert times.percentile(100) == pytest.approx(10.0)


def test_step_times_over_steps():
    assert step_ms([(32, 0.064), (8, 0.008)]) == [[32, 2.0], [40, 1.0]]


def test_compile_time_is_what_later_steps_do_not_take():
    warmup = watch_at(4.0, 6.0)
    warmup.start()
    warmup.stop(steps=10)

    later = step_times([(10, 0.5)])

    assert compile_seconds(1.0, warmup, later) == pytest.approx(4.5)
    assert compile_seconds(1.0, Stopwatch(), later) == 0.0


def test_schedule_keeps_to_the_distinct_batches():
    mlp = find("mlp")

    assert schedule(mlp, 64).steps_per_epoch == 64
    assert schedule(mlp, 64).steps == 64
    assert schedule(mlp, None).steps == mlp.steps
    assert schedule(mlp, 2 * mlp.batches).epochs == 2


def test_self_time_leaves_out_what_is_inside():
    events = [
        Event(0, 100, "step"),
        Event(10, 30, "a"),
        Event(15, 5, "b"),
        Event(40, 20, "a"),
        Event(100, 7, "b"),
    ]

    assert self_times(events) == {"step": (1, 50), "a": (2, 45), "b": (2, 12)}


def test_only_ops_are_profiled():
    assert op_of("model/dense/MatMul:MatMul#id=3#") == "MatMul"
    assert op_of("tensorflow::Executor") is None
    assert op_of("EagerExecute") is None
    assert op_of("EagerLocalExecute: PrefetchDataset") is None


def test_data_comes_from_the_seed_alone():
    first = find("mlp").make_data(64)
    second = find("mlp").make_data(64)

    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.y, second.y)


def test_ids_follow_a_zipf_law():
    ids = find("recsys_pool", 1000).make_data(2000).x
    counts = np.bincount(ids.ravel(), minlength=1000)

    assert ids.min() == 0
    assert ids.max() < 1000
    # Id k comes about as often as 1 / (k + 1).
    assert counts[0] == pytest.approx(3 * counts[2:3].sum(), rel=0.4)
    assert counts[:10].sum() > counts[100:].sum() * 0.7


def test_every_workload_is_named_after_itself():
    assert len(WORKLOADS) == 17
    for name, workload in WORKLOADS.items():
        assert workload.name == name
        assert workload.batches >= 20, "the weights of 20 steps are compared"


def test_growth_changes_the_size():
    assert growth("recsys_pool").sizes[0] == 20_000
    assert find("recsys_pool", 123).embedding_rows == 123
    assert find("mlp", 7).batch_size == 7


def test_what_cannot_grow_says_what_can():
    with pytest.raises(ValueError, match=r"'cnn'.*Choose from mlp"):
        find("cnn", 3)
