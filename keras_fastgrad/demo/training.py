"""Trains the same model with stock Keras and with FastGradModel, in turns."""

import dataclasses
from collections.abc import Callable, Mapping

import keras

from keras_fastgrad.callbacks import StepTimeMonitor
from keras_fastgrad.demo.models import Models, Settings, weight_difference
from keras_fastgrad.demo.text import Windows


@dataclasses.dataclass(frozen=True)
class Run:
    """How the training of one model went.

    Args:
        step_times_ms: Median step time of each turn, in milliseconds.
        samples_per_second: Windows a second of each turn.
        compile_seconds: Wall time of the first call, which traces the step.
        loss: Training loss over the last turn, in nats a character.
        validation_loss: Loss on text that was not trained on.
    """

    step_times_ms: tuple[float, ...]
    samples_per_second: tuple[float, ...]
    compile_seconds: float
    loss: float
    validation_loss: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both runs, and how far the weights are apart after them.

    Args:
        stock: The run of stock Keras.
        fast: Ours.
        weight_difference: Largest difference of a weight between the two.
        twin_difference: The same between our model and its twin.
    """

    stock: Run
    fast: Run
    weight_difference: float
    twin_difference: float

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of each turn, stock Keras's step time over ours."""
        return tuple(
            stock / fast
            for stock, fast in zip(
                self.stock.step_times_ms, self.fast.step_times_ms
            )
        )


class _StopAfterEpoch(keras.callbacks.Callback):
    """Hands over to the other model; a later `fit` resumes."""

    def on_epoch_end(self, epoch: int, logs: Mapping | None = None) -> None:
        self.model.stop_training = True


class Trainee:
    """One of the two models, with what was measured on it so far.

    Args:
        name: What it is called on the screen.
        model: The compiled model.
        turns: Epochs in all.
        verbose: As in `fit`.
    """

    def __init__(
        self, name: str, model: keras.Model, turns: int, verbose: int
    ) -> None:
        self.name = name
        self._model = model
        self._turns = turns
        self._verbose = verbose
        self._monitor = StepTimeMonitor()
        self._loss = float("nan")

    def train(self, turn: int, data: Windows, batch_size: int) -> None:
        """Trains for one epoch: the same `fit` call for both models."""
        history = self._model.fit(
            data.inputs,
            data.targets,
            batch_size=batch_size,
            epochs=self._turns,
            initial_epoch=turn,
            shuffle=False,
            verbose=self._verbose,
            callbacks=[self._monitor, _StopAfterEpoch()],
        )
        self._loss = history.history["loss"][-1]

    def run(self, validation: Windows) -> Run:
        """What was measured, with the loss on `validation`."""
        rows = self._monitor.history
        return Run(
            step_times_ms=tuple(row["step_time_ms"] for row in rows),
            # Absent where all of a turn was compilation.
            samples_per_second=tuple(
                row.get("samples_per_second", float("nan")) for row in rows
            ),
            compile_seconds=rows[0]["compile_seconds"],
            loss=self._loss,
            validation_loss=self._model.evaluate(
                validation.inputs, validation.targets, verbose=0
            ),
        )


def train_in_turns(
    models: Models,
    windows_of_turn: Callable[[int], Windows],
    validation: Windows,
    settings: Settings,
    verbose: int,
    announce: Callable[[str], None],
) -> Comparison:
    """Trains both models on the same windows, one epoch each by turns.

    On a machine with other work the speed of the moment hits both alike, and
    which of them goes first changes from turn to turn.

    Args:
        models: The compiled models. They are trained in place.
        windows_of_turn: Gives the data of a turn, counted from 0.
        validation: The windows to validate on at the end.
        settings: Turns and batch size.
        verbose: As in `fit`.
        announce: Called with the name of the model before it trains.

    Returns:
        What was measured.
    """
    stock = Trainee("stock Keras", models.stock, settings.turns, verbose)
    fast = Trainee("keras_fastgrad", models.fast, settings.turns, verbose)
    twin = Trainee("twin", models.twin, settings.turns, verbose=0)
    for turn in range(settings.turns):
        data = windows_of_turn(turn)
        order = (stock, fast) if turn % 2 == 0 else (fast, stock)
        for trainee in order:
            announce(trainee.name)
            trainee.train(turn, data, settings.batch_size)
        twin.train(turn, data, settings.batch_size)
    return Comparison(
        stock.run(validation),
        fast.run(validation),
        weight_difference(models.stock, models.fast),
        weight_difference(models.fast, models.twin),
    )
