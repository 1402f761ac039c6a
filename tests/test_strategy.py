"""The strategy as a value, and what is decided from it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import keras_fastgrad as fg
from keras_fastgrad.resolution import Facts, resolve
from keras_fastgrad.strategy import EXACT, KERAS, as_strategy

PLAIN = Facts(
    jit_compile=False,
    steps_per_execution=1,
    run_eagerly=False,
    no_jit_reason=None,
    no_kernel_reason=None,
    has_embedding=False,
)

STRATEGIES = st.builds(
    fg.Strategy,
    jit_compile=st.sampled_from(["auto", True, False]),
    precision=st.sampled_from([None, "float32", "mixed_bfloat16"]),
    gradients=st.sampled_from(["auto", "keras"]),
    optimizer_update=st.sampled_from(["auto", "keras", "fused"]),
    sparse_update=st.sampled_from(["auto", "dense"]),
    steps_per_execution=st.just("auto") | st.integers(1, 10**6),
)


@given(STRATEGIES)
def test_a_strategy_survives_its_text_and_its_config(strategy):
    assert fg.Strategy.parse(str(strategy)) == strategy
    assert fg.Strategy.from_config(strategy.get_config()) == strategy


@pytest.mark.parametrize(
    "field, value, hint",
    [
        ("jit_compile", "yes", "'auto', True, False"),
        ("jit_compile", 1, "'auto', True, False"),
        ("precision", "float16", "'mixed_float16'"),
        ("optimizer_update", "fast", "'fused'"),
        ("steps_per_execution", 0, "at least 1"),
        ("steps_per_execution", True, "at least 1"),
        ("steps_per_execution", 2.0, "at least 1"),
        ("gradients", ("no_such_op",), "a set of names"),
        ("gradients", "no_such_op", "a set of names"),
        ("gradients", 3, "a set of names"),
        ("sparse_update", "rows", "'deferred'"),
        ("accumulate_steps", 2, "not built yet"),
        ("accumulate_batches", 2, "not built yet"),
        ("rematerialize", "auto", "not built yet"),
        ("loss_scale", 128.0, "not built yet"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(field, value, hint):
    with pytest.raises(ValueError, match=field) as caught:
        fg.Strategy(**{field: value})
    assert hint in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_wrong_line_names_the_fields():
    with pytest.raises(ValueError, match=r"'jit_compile'.*Received: 'jit=t'"):
        fg.Strategy.parse("jit=t")


def test_a_strategy_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXACT.precision = "mixed_bfloat16"


def test_the_flags():
    assert as_strategy(False) == KERAS
    assert as_strategy(True) == as_strategy("exact") == EXACT
    mine = fg.Strategy(steps_per_execution=3)
    assert as_strategy(mine) is mine


def test_no_preset_trains_otherwise_than_keras():
    for flag in (False, True, "exact"):
        assert as_strategy(flag).precision is None


@given(STRATEGIES)
def test_nothing_is_left_undecided(strategy):
    decided = resolve(strategy, PLAIN).strategy
    assert decided.jit_compile in (True, False)
    assert decided.optimizer_update in ("keras", "fused")
    assert decided.steps_per_execution >= 1


def test_what_cannot_be_had_is_told_apart_from_what_was_left_open():
    facts = dataclasses.replace(
        PLAIN, no_jit_reason="no XLA", no_kernel_reason="no kernel"
    )
    asked = fg.Strategy(jit_compile=True, optimizer_update="fused")
    for strategy, refused in (
        (asked, ("jit_compile", "optimizer_update")),
        (EXACT, ()),
    ):
        resolution = resolve(strategy, facts)
        assert resolution.refused == refused
        assert resolution.strategy.jit_compile is False
        assert resolution.strategy.optimizer_update == "keras"
        assert resolution.reasons["optimizer_update"] == "no kernel"


def test_what_compile_was_given_fills_the_open_fields():
    facts = dataclasses.replace(PLAIN, jit_compile=True, steps_per_execution=9)
    decided = resolve(EXACT, facts).strategy
    assert (decided.jit_compile, decided.steps_per_execution) == (True, 9)


def test_an_eager_model_compiles_nothing():
    facts = dataclasses.replace(PLAIN, run_eagerly=True)
    resolution = resolve(fg.Strategy(jit_compile=True), facts)
    assert resolution.strategy.jit_compile is False
    assert "run_eagerly" in resolution.reasons["jit_compile"]
