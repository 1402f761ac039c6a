import argparse
import sys

import pytest
from bench_records import bench_run
from html_page import Page

from keras_fastgrad.reports import command, records
from keras_fastgrad.reports.page import render


def parse(*words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    options = parser.parse_args(["report", *map(str, words)])
    return options.run(options)


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.jsonl"
    for record in bench_run(turns=1, mlp=1.0):
        records.append(path, record)
    return path


def test_command_writes_the_page_beside_the_rows(run_file, capsys):
    assert parse(run_file) == 0
    page = run_file.with_suffix(".html")
    assert page.read_text("utf-8") == render(records.read(run_file))
    assert str(page) in capsys.readouterr().out


def test_command_writes_where_it_is_told(run_file, tmp_path):
    assert parse(run_file, "--out", tmp_path / "new" / "page.html") == 0
    assert (tmp_path / "new" / "page.html").stat().st_size > 10_000


def test_interrupted_run_keeps_its_finished_rows(run_file, tmp_path):
    whole = run_file.read_text("utf-8").splitlines(keepends=True)
    run_file.write_text("".join(whole[:4]) + whole[4][:40], "utf-8")

    assert parse(run_file) == 0
    text = Page(run_file.with_suffix(".html").read_text("utf-8")).text
    assert "fastgrad-exact" in text and "fastgrad-fast" not in text


def refused(capsys, *words):
    assert parse(*words) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    return err


def test_command_refuses_what_is_no_run(tmp_path, capsys):
    empty, binary = tmp_path / "empty.jsonl", tmp_path / "binary.jsonl"
    broken = tmp_path / "broken.jsonl"
    empty.write_text("")
    binary.write_bytes(b"\xff\xfe\x00")
    broken.write_text('{"kind": "other"}\n{}\n')

    assert "does not exist" in refused(capsys, tmp_path / "none.jsonl")
    assert "is a folder" in refused(capsys, tmp_path)
    assert "has no record in it" in refused(capsys, empty)
    assert "is not text" in refused(capsys, binary)
    assert "line 1" in refused(capsys, broken)
    assert "keras-fastgrad bench" in refused(capsys, empty)


def test_command_never_overwrites_the_rows(run_file, capsys):
    before = run_file.read_bytes()

    assert "--out" in refused(capsys, run_file, "--out", run_file)
    assert run_file.read_bytes() == before


def test_command_says_why_the_page_cannot_be_written(run_file, capsys):
    (run_file.parent / "page.html").mkdir()

    error = refused(capsys, run_file, "--out", run_file.parent / "page.html")

    assert "page.html" in error and "--out" in error


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_command_names_the_missing_extra(name, run_file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)

    error = refused(capsys, run_file)

    assert name in error and "`report`" in error and "pip install" in error
