"""`keras-fastgrad demo`: a character language model, trained twice."""

import argparse
import dataclasses
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console

from keras_fastgrad.demo import table, text
from keras_fastgrad.demo.generation import generate
from keras_fastgrad.demo.models import Models, Settings, compiled_models
from keras_fastgrad.demo.training import Comparison, train_in_turns

GENERATED_CHARACTERS = 400
TEMPERATURE = 0.5
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def add_parser(commands: Any) -> None:
    """Adds `demo` to the subparsers of the command line."""
    parser = commands.add_parser(
        "demo",
        help="train a small language model with and without keras_fastgrad",
        description=(
            "Trains the same character language model, from the same "
            "weights and on the same text, with stock Keras and with "
            "keras_fastgrad, and compares. Nothing is downloaded. Takes "
            "about a minute on two cores."
        ),
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="train four times as long, for better text",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of weights, data and generated text (default: 0)",
    )
    parser.set_defaults(run=run)


def settings_of(options: argparse.Namespace) -> Settings:
    """What the command line asks for."""
    settings = Settings(seed=options.seed)
    if options.full:
        settings = dataclasses.replace(settings, turns=12, steps=500)
    return settings


def run(options: argparse.Namespace) -> int:
    """Runs the demo.

    Args:
        options: The parsed command line.

    Returns:
        The exit code: 0, or 130 after Ctrl-C.
    """
    console = Console(highlight=False)
    try:
        show(console, settings_of(options))
    except KeyboardInterrupt:
        console.print("\nStopped: Ctrl-C. Nothing was written.")
        return INTERRUPTED
    return 0


def show(console: Console, settings: Settings) -> None:
    """Trains, and prints what came of it."""
    began = time.perf_counter()
    material = Material.of(text.help_topics())
    _print_plan(console, material, settings)
    models = compiled_models(len(material.alphabet), settings)
    comparison = train_in_turns(
        models,
        windows_of_turn=lambda turn: text.random_windows(
            material.train,
            settings.steps * settings.batch_size,
            settings.length,
            np.random.default_rng([settings.seed, turn]),
        ),
        validation=text.all_windows(material.validation, settings.length),
        settings=settings,
        # A bar redraws its line, which a file cannot.
        verbose=1 if sys.stdout.isatty() else 2,
        announce=lambda name: console.print(f"\n[bold]{name}[/bold]"),
    )
    _print_result(console, material, settings, models, comparison)
    console.print(
        f"\nDone in {time.perf_counter() - began:.0f} s, after TensorFlow "
        "was loaded."
    )


@dataclasses.dataclass(frozen=True)
class Material:
    """The text as numbers, one part to train on and one to validate on."""

    alphabet: text.Alphabet
    train: np.ndarray
    validation: np.ndarray

    @classmethod
    def of(cls, whole: str) -> "Material":
        """Numbers and splits a text."""
        alphabet = text.Alphabet.of(whole)
        train, validation = text.split(whole)
        return cls(
            alphabet, alphabet.encode(train), alphabet.encode(validation)
        )


def _print_plan(
    console: Console, material: Material, settings: Settings
) -> None:
    console.print(
        f"Text: the prose in Python's own help topics, "
        f"{len(material.train):,} characters to train on and "
        f"{len(material.validation):,} to validate on, "
        f"{len(material.alphabet)} different.\n"
        f"Model: one-hot characters, GRU({settings.units}), softmax; Adam; "
        f"{settings.batch_size} windows of {settings.length} characters a "
        "step.\n"
        "Trained twice from the same weights on the same windows, "
        f"{settings.all_steps:,} steps each, in {settings.turns} turns: stock "
        "Keras at its defaults, and keras_fastgrad with\n"
        f"  Strategy: {settings.strategy}\n"
        "A third model trains silently after each turn, as a control for the "
        "weights."
    )


def _print_result(
    console: Console,
    material: Material,
    settings: Settings,
    models: Models,
    comparison: Comparison,
) -> None:
    alphabet = material.alphabet
    baseline = text.frequency_loss(
        material.train, material.validation, len(alphabet)
    )
    prompt = material.validation[: settings.length]
    drawn = generate(
        models.fast,
        prompt,
        GENERATED_CHARACTERS,
        TEMPERATURE,
        np.random.default_rng(settings.seed),
    )
    console.print()
    console.print(table.comparison_table(comparison, settings.length))
    console.print(
        f"\nStrategy used: {models.fast.fastgrad.strategy}\n"
        "Stock Keras ran at its defaults; it has jit_compile and "
        "steps_per_execution\ntoo, and given the same ones it comes close to "
        "the step time of keras_fastgrad.\n"
    )
    for remark in (
        table.steadiness(comparison),
        table.rounding(comparison),
    ):
        if remark:
            console.print(remark + "\n")
    console.print(table.learned(comparison.fast, baseline, len(alphabet)))
    console.print(
        "\n[bold]Text by the model of keras_fastgrad[/bold], going on from "
        "these characters:"
    )
    console.print(f"  {alphabet.decode(prompt)!r}\n", markup=False)
    console.print(alphabet.decode(drawn) + " ...", markup=False)
