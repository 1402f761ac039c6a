import argparse
import dataclasses
import re

import keras
import numpy as np
import pytest
from rich.console import Console

from keras_fastgrad import FastGradModel, Strategy, demo
from keras_fastgrad.demo import generation, table, text
from keras_fastgrad.demo.models import (
    TWIN_OFFSET,
    Settings,
    build,
    compiled_models,
    weight_difference,
)
from keras_fastgrad.demo.training import Comparison, Run, train_in_turns

TINY = Settings(
    turns=2,
    steps=5,
    batch_size=4,
    length=6,
    units=5,
    seed=3,
    strategy=Strategy(steps_per_execution=2, optimizer_update="fused"),
)
PHRASE = "how many boards could the Mongols hoard? " * 40


def parsed(*words):
    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    return parser.parse_args(["demo", *words])


def printed(renderable):
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


class TestText:
    def test_encoding_round_trip(self):
        topics = text.help_topics()
        alphabet = text.Alphabet.of(topics)
        numbers = alphabet.encode(topics)
        assert alphabet.decode(numbers) == topics
        assert sorted(set(numbers.tolist())) == list(range(len(alphabet)))

    def test_unknown_character_is_named(self):
        with pytest.raises(ValueError, match=r"Received: \['z'\]"):
            text.Alphabet.of("abc").encode("abz")

    def test_help_topics_are_english_prose(self):
        topics = text.help_topics()
        words = re.findall(r"[a-z]+", topics.lower())
        assert len(topics) > 50_000
        assert topics.isascii()
        # "the" is the commonest word of English: about one in 15.
        assert 0.04 < words.count("the") / len(words) < 0.12

    def test_split_loses_nothing_and_cuts_between_paragraphs(self):
        whole = "\n\n".join(f"paragraph {number}" for number in range(50))
        train, validation = text.split(whole, 0.2)
        assert train + validation == whole
        assert validation.startswith("paragraph ")
        assert 0.7 < len(train) / len(whole) <= 0.8

    def test_split_without_paragraphs(self):
        train, validation = text.split("x" * 10, 0.2)
        assert (len(train), len(validation)) == (8, 2)


class TestWindows:
    numbers = np.arange(100, 150, dtype="int32")

    @pytest.mark.parametrize("seed", range(5))
    def test_target_is_input_one_later(self, seed):
        rng = np.random.default_rng(seed)
        windows = text.random_windows(self.numbers, 200, 7, rng)
        assert windows.inputs.shape == windows.targets.shape == (200, 7)
        assert (windows.targets == windows.inputs + 1).all()

    def test_random_windows_reach_both_ends(self):
        rng = np.random.default_rng(0)
        windows = text.random_windows(self.numbers, 2000, 7, rng)
        assert windows.inputs.min() == 100
        assert windows.targets.max() == 149

    @pytest.mark.parametrize(
        ("length", "covered"), [(7, 49), (10, 40), (49, 49), (3, 48)]
    )
    def test_all_windows_cover_the_text_once(self, length, covered):
        windows = text.all_windows(self.numbers, length)
        assert windows.inputs.ravel().tolist() == list(
            range(100, 100 + covered)
        )
        assert (windows.targets == windows.inputs + 1).all()


class TestFrequencyLoss:
    def test_is_the_entropy_where_shares_agree(self):
        numbers = np.array([0] * 3000 + [1] * 1000)
        entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
        loss = text.frequency_loss(numbers, numbers, 2)
        assert loss == pytest.approx(entropy, rel=1e-3)

    def test_unseen_character_costs_a_finite_amount(self):
        loss = text.frequency_loss(np.array([0, 0]), np.array([2]), 3)
        assert loss == pytest.approx(np.log(5))


class TestGenerate:
    def model(self):
        return build(keras.Model, 9, TINY)

    def drawn(self, seed, temperature=1.0):
        prompt = np.arange(TINY.length, dtype="int32")
        rng = np.random.default_rng(seed)
        return generation.generate(
            self.model(), prompt, 30, temperature, rng
        ).tolist()

    def test_same_seed_same_text(self):
        assert self.drawn(1) == self.drawn(1)
        assert self.drawn(1) != self.drawn(2)

    def test_known_characters_only(self):
        assert set(self.drawn(1)) <= set(range(9))

    def test_low_temperature_takes_the_likeliest(self):
        model = self.model()
        window = np.arange(TINY.length, dtype="int32")[None]
        expected = []
        for _ in range(30):
            likeliest = np.argmax(np.asarray(model(window))[0, -1])
            expected.append(int(likeliest))
            window = np.append(window[:, 1:], [[likeliest]], axis=1)
        assert self.drawn(1, temperature=1e-6) == expected


class TestTable:
    comparison = Comparison(
        stock=Run((9.0, 30.0, 10.0), (100.0, 50.0, 1200.0), 1.5, 1.25, 1.5),
        fast=Run((6.0, 10.0, 5.0), (200.0, 90.0, 7654.0), 4.5, 1.26, 1.75),
        weight_difference=0.00012,
        twin_difference=0.00034,
    )

    @pytest.mark.parametrize(
        ("row", "figures"),
        [
            ("step time", ["10.00 ms", "6.00 ms", "ratio 2.00 (1.50 to 3.00)"]),
            ("samples/s", ["100", "200", "of 6 characters"]),
            ("first call", ["1.5 s", "4.5 s"]),
            ("final loss", ["1.2500", "1.2600", "1.0e-02"]),
            ("validation loss", ["1.5000", "1.7500", "2.5e-01"]),
            ("weight difference", ["1.2e-04"]),
        ],
    )
    def test_rows_come_from_the_measurements(self, row, figures):
        lines = printed(table.comparison_table(self.comparison, 6))
        (line,) = [
            line
            for line in lines.splitlines()
            if line.strip("│ ").startswith(row)
        ]
        for figure in figures:
            assert figure in line

    def test_fits_80_columns(self):
        lines = printed(table.comparison_table(self.comparison, 6))
        assert max(map(len, lines.splitlines())) <= 80
        assert "…" not in lines

    def test_ratios_are_taken_turn_by_turn(self):
        assert self.comparison.ratios == (1.5, 3.0, 2.0)

    def test_varying_ratio_is_said(self):
        steady = dataclasses.replace(
            self.comparison, stock=self.comparison.fast
        )
        assert "varied" in table.steadiness(self.comparison)
        assert table.steadiness(steady) == ""

    def test_rounding_names_both_differences(self):
        sentence = table.rounding(self.comparison)
        assert "1.2e-04 apart" in sentence
        assert "3.4e-04 away" in sentence

    def test_learned_gives_perplexities(self):
        sentence = table.learned(self.comparison.fast, np.log(20.0), 61)
        assert f"{np.exp(1.75):.1f} equally likely" in sentence
        assert "leave 20.0, pure chance 61" in sentence


class TestOptions:
    def test_default(self):
        assert demo.settings_of(parsed()) == Settings()

    def test_full_trains_longer_on_the_same_model(self):
        full = demo.settings_of(parsed("--full", "--seed", "7"))
        assert full.all_steps > 3 * Settings().all_steps
        assert full.seed == 7
        assert full.units == Settings().units

    def test_ctrl_c_ends_with_130(self, monkeypatch, capsys):
        def interrupted(console, settings):
            raise KeyboardInterrupt

        monkeypatch.setattr(demo, "show", interrupted)
        options = parsed()
        assert options.run(options) == 130
        assert "Stopped" in capsys.readouterr().out


class TestTraining:
    def test_both_models_train_the_same(self):
        alphabet = text.Alphabet.of(PHRASE)
        numbers = alphabet.encode(PHRASE)
        models = compiled_models(len(alphabet), TINY)
        before = models.stock.get_weights()
        assert weight_difference(models.stock, models.fast) == 0
        assert 0 < weight_difference(models.fast, models.twin) < TWIN_OFFSET * 2
        order = []
        comparison = train_in_turns(
            models,
            lambda turn: text.random_windows(
                numbers, 20, TINY.length, np.random.default_rng(turn)
            ),
            text.all_windows(numbers, TINY.length),
            TINY,
            verbose=0,
            announce=order.append,
        )
        assert isinstance(models.fast, FastGradModel)
        assert not isinstance(models.stock, FastGradModel)
        assert models.fast.fastgrad.telemetry()["steps"] == 10
        assert int(models.stock.optimizer.iterations) == 10
        assert order == [
            "stock Keras",
            "keras_fastgrad",
            "keras_fastgrad",
            "stock Keras",
        ]
        moved = np.abs(models.stock.get_weights()[0] - before[0]).max()
        assert moved > 1e-2
        assert comparison.weight_difference < 1e-5
        assert comparison.weight_difference == weight_difference(
            models.stock, models.fast
        )
        assert comparison.fast.loss == pytest.approx(
            comparison.stock.loss, rel=1e-5
        )
        assert comparison.fast.validation_loss == pytest.approx(
            comparison.stock.validation_loss, rel=1e-5
        )
        assert len(comparison.ratios) == 2

    def test_the_whole_demo(self, monkeypatch, capsys):
        monkeypatch.setattr(demo, "settings_of", lambda options: TINY)
        monkeypatch.setattr(text, "help_topics", lambda: PHRASE)
        options = parsed()
        assert options.run(options) == 0
        shown = capsys.readouterr().out
        for part in (
            "stock Keras",
            "Epoch 2/2",
            "step_time_ms",
            "ratio",
            "Strategy used: jit_compile=False, optimizer_update=fused",
            "Did it learn?",
            "going on from these characters",
        ):
            assert part in shown
