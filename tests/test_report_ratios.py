import math

import pytest
from bench_records import RUN, row

from keras_fastgrad.reports.ratios import (
    RatioSummary,
    medians,
    memory_ratios,
    ratios,
    with_distinct_turns,
)


def rows_of(variant, p50s, **changes):
    return [
        row(variant=variant, turn=turn, step_ms_p50=p50, **changes)
        for turn, p50 in p50s.items()
    ]


def test_ratio_is_taken_turn_by_turn():
    # The machine is three times as slow in turn 1: a ratio of medians would
    # be 10 / 6 here, and no turn has it.
    rows = rows_of("keras", {0: 10.0, 1: 30.0, 2: 8.0})
    rows += rows_of("fast", {0: 5.0, 1: 12.0, 2: 6.0})

    assert ratios(rows)["mlp", "fast"] == RatioSummary(
        median=2.0, low=8.0 / 6.0, high=2.5, turns=3
    )
    assert ratios(rows)["mlp", "keras"].median == 1.0


def test_turns_without_both_are_left_out():
    rows = rows_of("keras", {0: 10.0, 2: 12.0})
    rows += rows_of("fast", {0: 5.0, 1: 0.1, 2: 4.0, 3: 0.1})

    assert ratios(rows)["mlp", "fast"] == RatioSummary(2.5, 2.0, 3.0, 2)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0])
def test_turns_that_timed_nothing_are_left_out(broken):
    rows = rows_of("keras", {0: 10.0, 1: broken, 2: 10.0})
    rows += rows_of("fast", {0: 5.0, 1: 5.0, 2: broken})
    rows += rows_of("dead", {0: broken})

    assert ratios(rows)["mlp", "fast"] == RatioSummary(2.0, 2.0, 2.0, 1)
    assert ratios(rows)["mlp", "dead"] is None


def test_workloads_are_not_compared_with_each_other():
    rows = [row("mlp", "keras"), row("cnn", "fast", step_ms_p50=1.0)]

    assert ratios(rows)["cnn", "fast"] is None


def test_one_wrong_turn_takes_the_ratio_away():
    rows = rows_of("keras", {0: 10.0, 1: 10.0})
    rows += rows_of("fast", {0: 5.0}, verdict="right")
    rows += rows_of("fast", {1: 5.0}, verdict="wrong")

    assert ratios(rows)["mlp", "fast"] is None
    assert memory_ratios(rows)["mlp", "fast"] is None


def test_other_reference_and_memory():
    rows = [row(variant="keras"), row(variant="fast", peak_mb=400.0)]

    assert memory_ratios(rows)["mlp", "fast"].median == 2.0
    assert memory_ratios(rows, "fast")["mlp", "keras"].median == 0.5


def test_medians_merge_the_turns():
    rows = [
        row(turn=0, step_ms_p20=3.0, step_ms_p50=4.0, step_ms_p80=9.0),
        row(turn=1, step_ms_p20=2.0, step_ms_p50=5.0, step_ms_p80=6.0),
        row(turn=2, step_ms_p50=math.nan, step_ms_p20=9.0, peak_mb=900.0),
        row(variant="fast", verdict="right", max_weight_difference=1e-7),
        row(variant="fast", verdict="wrong", final_loss=math.nan, turn=1),
    ]

    keras, fast = medians(rows)

    assert (keras.step_ms_p20, keras.step_ms_p50) == (2.0, 4.5)
    assert (keras.step_ms_p80, keras.peak_mb, keras.turn) == (11.0, 900.0, 3)
    assert (fast.verdict, fast.max_weight_difference) == ("wrong", 1e-7)
    assert math.isnan(fast.final_loss)


def test_turns_of_two_runs_in_a_file_stay_apart():
    first = [RUN, *rows_of("keras", {0: 10.0}), *rows_of("fast", {0: 5.0})]
    later = [RUN, *rows_of("keras", {0: 80.0}), *rows_of("fast", {0: 20.0})]

    found = ratios(with_distinct_turns(first + later))["mlp", "fast"]

    assert found == RatioSummary(3.0, 2.0, 4.0, 2)
