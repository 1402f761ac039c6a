import base64
import dataclasses
import math
from xml.etree import ElementTree

import pytest
from bench_records import RUN, SPELLED, bench_run, row
from html_page import Page

from keras_fastgrad.reports import records
from keras_fastgrad.reports.page import render

HOSTILE = (
    "<script>alert('x')</script>\" onload='y' {{ 7001 * 7001 }} $\\frac{ & ]]>"
)


@pytest.fixture(scope="module")
def page_text():
    return render(bench_run())


@pytest.fixture(scope="module")
def page(page_text):
    return Page(page_text)


def test_page_says_where_when_and_how(page):
    for said in (RUN.command, RUN.date, RUN.processor, "tensorflow 2.21.0"):
        assert said in page.text


def test_page_loads_nothing(page, page_text):
    links = page.attributes("href")
    pictures = page.attributes("src") + page.attributes("srcset")

    assert [link[1:] for link in links] == page.attributes("id")
    assert len(pictures) >= 2 * (3 * 3 + 1 + 2)
    assert all(
        picture.startswith("data:image/svg+xml;base64,") for picture in pictures
    )
    assert {"script", "link", "iframe"}.isdisjoint(tag for tag, _ in page.tags)
    for loading in ("http:", "https:", '="//', "@import", "url("):
        assert loading not in page_text


def test_pictures_have_text_alternatives(page):
    alternatives = page.attributes("alt")

    assert len(alternatives) == sum(tag == "img" for tag, _ in page.tags)
    speed = [alt for alt in alternatives if alt.startswith("Speed")]
    assert len(speed) == 3
    assert all(f"{SPELLED} wrong" in alt for alt in speed)


def test_wrong_variant_is_marked_and_has_no_ratio(page):
    fast = [row(), row(variant="fast", step_ms_p50=0.8, verdict="right")]
    wrong = [fast[0], dataclasses.replace(fast[1], verdict="wrong")]

    right_page, wrong_page = Page(render(fast)), Page(render(wrong))

    assert (
        "12.5\u00d7" in right_page.text and "12.5\u00d7" not in wrong_page.text
    )
    assert "✗ wrong" in wrong_page.text and "✗ wrong" not in right_page.text
    assert "without a ratio: fast on mlp" in wrong_page.text
    assert f"without a ratio: {SPELLED} on mlp, cnn, lstm" in page.text


def test_missing_variants_are_named_with_the_reason(page):
    assert page.text.count("Not measured: tf-keras. tf_keras is not") == 3


def test_failed_turn_of_a_measured_variant_is_told():
    gap = records.Missing("mlp", "keras", "killed in turn 2")

    text = Page(render([row(), gap, gap])).text

    assert text.count("Measured only in part: keras. killed in turn 2") == 1


def test_figure_of_the_article_that_failed_is_told_with_the_article():
    gap = records.Missing("article", "pipeline", "out of memory")

    page = Page(render([gap]))

    assert "figures beside ours" in page.text
    assert "Not measured: pipeline. out of memory" in page.text
    assert sum(tag == "h2" for tag, _ in page.tags) == 1


def test_workload_without_stock_keras_says_so():
    text = Page(render([row(variant="fast", verdict="right")])).text

    assert "Stock Keras was not measured here" in text
    assert "No strategy of FastGrad has both" in text


def test_article_stands_beside_ours(page):
    assert "graph against eager ms a step 28.0 14.0 50 % 41.0" in page.text
    assert (
        "attention gradient ms \u2013 \u2013 20 % 97.0 72.0 26 %" in page.text
    )


def test_runs_of_different_machines_are_pointed_out():
    other = dataclasses.replace(RUN, processor="another")

    assert "different machines" in Page(render([RUN, row(), other])).text
    assert "different machines" not in Page(render([RUN, row(), RUN])).text


def hostile(record):
    """The record with every text in it replaced by a hostile one."""
    changes = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, str) and field.name != "kind":
            changes[field.name] = HOSTILE
        elif isinstance(value, dict):
            changes[field.name] = {HOSTILE: HOSTILE}
        elif field.name == "switches":
            changes[field.name] = [[1, HOSTILE, HOSTILE]]
    return dataclasses.replace(record, **changes)


def test_hostile_names_are_only_text():
    known = bench_run(turns=1, mlp=1.0)
    seen = [hostile(record) for record in known]
    # Beside rows that have a verdict and a ratio, which a text cannot have.
    named = [
        dataclasses.replace(hostile(record), verdict="wrong")
        for record in known
        if isinstance(record, records.Row)
    ]
    spelled = dataclasses.replace(row(), workload=HOSTILE)

    page = Page(render([*seen, *named, spelled, *known]))

    assert {"script"}.isdisjoint(tag for tag, _ in page.tags)
    assert not page.attributes("onload")
    assert page.text.count(" ".join(HOSTILE.split())) > 20
    assert "49014001" not in page.text


@pytest.mark.parametrize(
    "kind",
    [
        records.Run,
        records.Row,
        records.Missing,
        records.ScalePoint,
        records.ProfileEntry,
        records.ArticleRow,
    ],
)
def test_page_of_one_kind_alone(kind):
    known = bench_run(turns=1, mlp=1.0)
    alone = [record for record in known if isinstance(record, kind)]

    page = Page(render(alone))

    headings = sum(tag == "h2" for tag, _ in page.tags)
    # Rows also have the table of all workloads.
    assert headings == {records.Run: 0, records.Row: 2}.get(kind, 1)


def test_page_of_rows_that_timed_nothing():
    nothing = dict.fromkeys(
        ("step_ms_p20", "step_ms_p50", "step_ms_p80", "samples_per_second"),
        math.nan,
    )
    dead = row(final_loss=math.nan, peak_mb=math.nan, step_ms=[], **nothing)

    text = Page(render([dead, dataclasses.replace(dead, variant="fast")])).text

    assert "NaN" in text and "nan" not in text


@pytest.mark.parametrize("name", ["$\\frac{$", "_hidden", "", "\U0001f680\x07"])
def test_pictures_take_any_name(name):
    known = bench_run(turns=1, mlp=1.0)
    renamed = [
        dataclasses.replace(record, variant=name)
        for record in known
        if hasattr(record, "variant") and record.variant == "fastgrad-exact"
    ]
    grown = records.ScalePoint(name, name, 1, name, 0, 1.0, 1.0)

    pictures = Page(render([row(), *renamed, grown])).attributes("src")

    assert len(pictures) == 3 + 1 + 4
    for picture in pictures:
        # Raises where it is not well-formed.
        ElementTree.fromstring(base64.b64decode(picture.partition(",")[2]))


def test_summary_hides_no_slower_result():
    slow = row(variant="fastgrad-exact", step_ms_p50=20.0, verdict="right")

    text = Page(render([row(), slow])).text

    assert "mlp 0.500\u00d7 by fastgrad-exact" in text
    assert "Faster than that: mlp 1.00\u00d7 by keras" in text


@pytest.mark.parametrize(
    "record",
    [
        row(step_ms=[[0, 0.0]], step_ms_p50=math.inf, peak_mb=0.0),
        row(step_ms=[[step, 1.0 + step % 7] for step in range(5000)]),
        records.ProfileEntry("mlp", "keras", "Mul", 0, 0.0, 0.0),
        records.ScalePoint("mlp", "rows", 0, "keras", 0, 0.0, math.nan),
    ],
)
def test_pictures_of_extreme_figures(record):
    assert "</html>" in render([record])
