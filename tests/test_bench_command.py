import argparse
import csv
import io
import math

import pytest
from bench_records import RUN, row
from rich.console import Console

from keras_fastgrad.bench import command, table
from keras_fastgrad.reports.records import Missing, Row, of_kind, read


def run_bench(*words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(required=True))
    options = parser.parse_args(["bench", *map(str, words)])
    return options.run(options)


def printed(*records):
    console = Console(file=io.StringIO(), width=200)
    table.show(records, console)
    return console.file.getvalue()


def line_of(text, variant):
    (line,) = [line for line in text.splitlines() if f" {variant} " in line]
    return line


def test_unknown_names_are_refused_before_anything_runs(capsys, tmp_path):
    for words, expected in (
        (["mpl"], "Received: 'mpl'. Choose from mlp, cnn"),
        (["--variants", "keras,tourch"], "Received: 'tourch'. Choose from"),
        (["--scale", "cnn"], "no dimension to grow along"),
        (["--profile", "mpl"], "Received: 'mpl'"),
        (["--strategy", "speed=9"], "Received: 'speed=9'"),
    ):
        with pytest.raises(SystemExit) as exit_:
            run_bench(*words, "--out", tmp_path)

        assert exit_.value.code == 2
        assert expected in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_interrupted_run_keeps_its_rows_and_shows_them(
    monkeypatch, tmp_path, capsys
):
    def interrupted(plan, launch, hooks):
        hooks.record(row(variant="keras"))
        hooks.record(row(variant="fastgrad-exact", step_ms_p50=5.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    monkeypatch.setenv("COLUMNS", "200")

    code = run_bench("mlp", "--quick", "--out", tmp_path)

    assert code == command.INTERRUPTED
    rows = of_kind(read(tmp_path / "run.jsonl"), Row)
    assert [r.variant for r in rows] == ["keras", "fastgrad-exact"]
    with (tmp_path / "run.csv").open(newline="") as file:
        assert [r["variant"] for r in csv.DictReader(file)] == [
            "keras",
            "fastgrad-exact",
        ]
    output = capsys.readouterr().out
    assert "Interrupted" in output
    assert "2.00" in line_of(output, "fastgrad-exact")


def test_wrong_variant_has_no_ratio():
    text = printed(
        row(variant="keras", verdict="reference"),
        row(variant="wild", step_ms_p50=1.0, verdict="wrong"),
        row(variant="sound", step_ms_p50=4.0, verdict="right"),
        row(variant="other", step_ms_p50=8.0, verdict="unchecked"),
    )

    assert "10.0" not in line_of(text, "wild")
    assert line_of(text, "wild").count("wrong") == 2
    assert "2.50" in line_of(text, "sound")
    assert "1.25" in line_of(text, "other")


def test_table_shows_what_is_missing_and_where_it_was_measured():
    text = printed(RUN, row(), Missing("mlp", "torch", "not [installed]"))

    assert "torch was not measured on mlp: not [installed]" in text
    assert RUN.processor in text


def test_names_are_no_markup():
    text = printed(row(variant="[red]x[/red]", strategy="[bold]"))

    assert "[red]x[/red]" in text
    assert "[bold]" in text


def test_mlp_from_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")

    code = run_bench(
        "mlp",
        "--variants=keras,fastgrad-exact",
        "--quick",
        "--out",
        tmp_path,
    )

    assert code == 0
    stock, ours = of_kind(read(tmp_path / "run.jsonl"), Row)
    assert (stock.verdict, ours.verdict) == ("reference", "right")
    assert stock.max_weight_difference == 0.0
    assert ours.max_weight_difference < 1e-5
    assert ours.final_loss == pytest.approx(stock.final_loss, rel=1e-3)
    assert stock.steps == ours.steps == 128
    assert [step for step, _ in ours.step_ms] == [32, 64, 96, 128]
    assert "steps_per_execution=32" in ours.strategy
    for one in (stock, ours):
        assert 0 < one.step_ms_p20 <= one.step_ms_p50 <= one.step_ms_p80
        assert math.isfinite(one.compile_seconds)
        assert one.peak_mb > 50
        assert one.command.startswith("python -m keras_fastgrad.bench.worker")
    assert "right" in line_of(capsys.readouterr().out, "fastgrad-exact")
