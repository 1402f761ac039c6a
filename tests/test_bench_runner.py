import dataclasses
import importlib.util

import pytest
from bench_records import row

from keras_fastgrad.bench import article, launch, scale
from keras_fastgrad.bench.article_claims import CLAIMS
from keras_fastgrad.bench.job import Job
from keras_fastgrad.bench.launch import explained, process
from keras_fastgrad.bench.runner import Hooks, Plan, process_count, run
from keras_fastgrad.bench.variants import (
    choose_variants,
    missing_reason,
    named_variants,
    of_strategy,
)
from keras_fastgrad.bench.workloads import find
from keras_fastgrad.reports.records import ArticleRow, Missing, Row, ScalePoint


class Laboratory:
    """Answers jobs without running them, and keeps what was asked."""

    def __init__(self, answer=None):
        self.jobs = []
        self.records = []
        self.hooks = Hooks(self.records.append)
        self._answer = answer or (lambda job: 10.0)

    def launch(self, job):
        self.jobs.append(job)
        answer = self._answer(job)
        if isinstance(answer, Missing):
            return answer
        return dataclasses.replace(
            row(job.workload, job.variant),
            turn=job.turn,
            strategy=job.setting,
            step_ms_p50=answer,
        )

    def turns(self):
        return [
            (job.variant, job.turn)
            for job in self.jobs
            if job.reference is not None
        ]


def plan_of(tmp_path, *names, workloads=("mlp",), turns=2, strategies=()):
    variants = choose_variants(names, strategies, "fast")
    return Plan(tuple(workloads), variants, turns, 64, tmp_path)


def test_variants_take_turns(tmp_path):
    lab = Laboratory()

    run(plan_of(tmp_path, "keras", "fastgrad-exact"), lab.launch, lab.hooks)

    assert lab.turns() == [
        ("keras", 1),
        ("fastgrad-exact", 1),
        ("keras", 2),
        ("fastgrad-exact", 2),
    ]
    assert [(r.variant, r.turn) for r in lab.records] == lab.turns()


def test_reference_comes_first_and_is_no_row(tmp_path):
    lab = Laboratory()

    run(plan_of(tmp_path, "fastgrad-exact"), lab.launch, lab.hooks)

    stock, moved, ours, _ = lab.jobs
    assert stock.save_reference == ours.reference
    assert not stock.dense_gradients
    assert moved.perturbation > 0
    assert len(lab.records) == 2


def test_embedding_has_a_reference_with_dense_gradients(tmp_path):
    lab = Laboratory()
    own = "optimizer_update=keras,sparse_update=dense"

    run(
        plan_of(
            tmp_path,
            "keras",
            "fastgrad-exact",
            workloads=["lm"],
            strategies=[own],
        ),
        lab.launch,
        lab.hooks,
    )

    kinds = {
        job.save_reference: job.dense_gradients
        for job in lab.jobs
        if job.save_reference
    }
    against = {
        job.variant: kinds[job.reference] for job in lab.jobs if job.reference
    }
    assert against == {
        "keras": False,
        "fastgrad-exact": True,
        of_strategy(own).name: False,
    }


def test_chaos_widens_what_is_right(tmp_path):
    lab = Laboratory()

    def launch(job):
        loss = 1.05 if job.perturbation else 1.0
        return dataclasses.replace(lab.launch(job), final_loss=loss)

    run(plan_of(tmp_path, "fastgrad-exact", turns=1), launch, lab.hooks)

    assert lab.jobs[-1].tolerance == pytest.approx(0.1)


def test_steady_training_keeps_the_declared_tolerance(tmp_path):
    lab = Laboratory()

    run(plan_of(tmp_path, "fastgrad-exact", turns=1), lab.launch, lab.hooks)

    assert lab.jobs[-1].tolerance == 1e-3


def test_reference_that_fails_is_said(tmp_path):
    def answer(job):
        if job.save_reference:
            return Missing(job.workload, job.variant, "out of memory")
        return 5.0

    lab = Laboratory(answer)

    run(plan_of(tmp_path, "fastgrad-exact", turns=1), lab.launch, lab.hooks)

    missing, kept = lab.records
    assert missing.variant == "reference with stock gradients"
    assert kept.variant == "fastgrad-exact"


def test_fastest_setting_of_short_trials_is_measured(tmp_path):
    def answer(job):
        return 3.0 if "jit_compile=True" in job.setting else 5.0

    lab = Laboratory(answer)
    plan = plan_of(tmp_path, "keras-best", turns=1)

    run(plan, lab.launch, lab.hooks)

    (result,) = lab.records
    assert result.strategy == "jit_compile=True, steps_per_execution=32"
    assert len(lab.jobs) == process_count(plan)


def test_bfloat16_is_tried_only_where_the_preset_allows_it():
    mlp = find("mlp")
    exact = named_variants("exact")["keras-best"].settings(mlp)
    fast = named_variants("fast")["keras-best"].settings(mlp)

    assert not any("bfloat16" in setting for setting in exact)
    assert set(exact) < set(fast)
    assert any("bfloat16" in setting for setting in fast)


def test_setting_that_fails_its_trial_is_left_out(tmp_path):
    def answer(job):
        if "jit_compile=True" in job.setting:
            return Missing(job.workload, job.variant, "XLA cannot")
        return 5.0

    lab = Laboratory(answer)

    run(plan_of(tmp_path, "keras-best", turns=1), lab.launch, lab.hooks)

    (result,) = lab.records
    assert isinstance(result, Row)
    assert "jit_compile=True" not in result.strategy


def test_variant_whose_settings_all_fail_is_missing(tmp_path):
    lab = Laboratory(lambda job: Missing(job.workload, job.variant, "boom"))

    run(plan_of(tmp_path, "keras-best"), lab.launch, lab.hooks)

    assert lab.records[-1] == Missing("mlp", "keras-best", "boom")
    assert not [r for r in lab.records if isinstance(r, Row)]


def test_crashed_worker_costs_its_variant_alone(tmp_path):
    def answer(job):
        if job.variant == "keras" and job.turn == 1 and job.reference:
            return Missing(job.workload, job.variant, "out of memory")
        return 5.0

    lab = Laboratory(answer)

    run(plan_of(tmp_path, "keras", "fastgrad-exact"), lab.launch, lab.hooks)

    assert lab.records[0] == Missing("mlp", "keras", "out of memory")
    assert [(r.variant, r.turn) for r in lab.records[1:]] == [
        ("fastgrad-exact", 1),
        ("fastgrad-exact", 2),
    ]


@pytest.mark.parametrize("peer", ["torch", "tf-keras"])
def test_missing_peer_is_said_plainly(tmp_path, monkeypatch, peer):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    lab = Laboratory()

    run(plan_of(tmp_path, peer, "keras", turns=1), lab.launch, lab.hooks)

    missing, kept = lab.records
    assert f"{peer} is not installed" in missing.reason
    assert "pip install 'keras-fastgrad[bench]'" in missing.reason
    assert kept.variant == "keras"


def test_workload_without_a_torch_version(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    torch = named_variants("fast")["torch"]

    assert missing_reason(torch, find("mlp")) is None
    assert "input_bound" in missing_reason(torch, find("input_bound"))


def test_command_of_a_job_spells_the_job():
    job = Job(
        "mlp",
        "fastgrad: precision=mixed_bfloat16",
        "fastgrad",
        "precision=mixed_bfloat16, steps_per_execution=32",
        steps=64,
        turn=2,
        reference="a folder/r.npz",
        dense_gradients=True,
        tolerance=0.1,
    )

    assert Job.from_arguments(job.arguments()) == job
    assert "'a folder/r.npz'" in job.command()


def test_worker_that_fails_gives_the_end_of_its_error():
    result = process(timeout=120)(Job("no such", "keras", "keras"))

    assert isinstance(result, Missing)
    assert "No workload has this name" in result.reason


def test_worker_that_takes_too_long_is_ended():
    result = process(timeout=0.01)(Job("mlp", "keras", "keras"))

    assert result.reason == "ended after 0.01 s; allow more with --timeout"


def test_output_that_is_no_row_is_an_error(monkeypatch):
    monkeypatch.setattr(launch, "run_module", lambda *_: '{"loss": 1}')

    assert isinstance(process(1)(Job("mlp", "keras", "keras")), Missing)


def test_killed_worker_is_explained():
    assert "out of memory" in explained(-9, "")
    assert explained(1, "a\nb\n\nc\nd") == "failed with exit code 1: b | c | d"


def test_scale_goes_from_small_to_large_and_stops_where_it_fails():
    def answer(job):
        if job.variant == "keras" and job.size > 200_000:
            return Missing(job.workload, job.variant, "out of memory")
        return 2.0

    lab = Laboratory(answer)

    scale.run("recsys_pool", 1, lab.launch, lab.hooks)

    points = [r for r in lab.records if isinstance(r, ScalePoint)]
    assert [p.size for p in points if p.variant == "keras"] == [20_000, 200_000]
    assert len([p for p in points if p.variant == "fastgrad-exact"]) == 4
    (missing,) = [r for r in lab.records if isinstance(r, Missing)]
    assert missing.reason == "table rows 1,000,000: out of memory"


def test_article_answers_every_claim():
    lab = Laboratory()

    article.run(5, 2, lab.launch, lab.hooks)

    assert len(lab.jobs) == article.process_count(2)
    assert [r.name for r in lab.records] == [c.name for c in CLAIMS]
    assert all(isinstance(r, ArticleRow) for r in lab.records)


def test_article_compares_within_a_turn():
    claim = CLAIMS[0]
    times = {
        (claim.before, 1): 10.0,
        (claim.after, 1): 5.0,
        (claim.before, 2): 40.0,  # the machine was slow
        (claim.after, 2): 20.0,
        (claim.before, 3): 12.0,
        (claim.after, 3): 6.0,
    }

    answer = article.answered(claim, times, {})

    assert answer.ours_saved == 0.5
    assert (answer.ours_before, answer.ours_after) == (12.0, 6.0)
    assert (answer.theirs_before, answer.theirs_saved) == (28.0, 0.5)


def test_article_gives_the_share_of_computing():
    (claim,) = [c for c in CLAIMS if c.computing]
    times = {
        (claim.before, 1): 10.0,
        (claim.after, 1): 8.0,
        (claim.computing, 1): 4.0,
    }

    answer = article.answered(claim, times, {})

    assert (answer.ours_before, answer.ours_after) == (40.0, 50.0)
    assert answer.ours_saved == pytest.approx(0.2)


def test_article_says_which_side_failed():
    claim = CLAIMS[0]

    answer = article.answered(claim, {}, {claim.after: "boom"})

    assert answer == Missing("article", claim.name, "boom")
    assert article.answered(claim, {(claim.before, 1): 1.0}, {}) is None
