"""One measurement of one process, and the command line that repeats it."""

import argparse
import dataclasses
import shlex
from collections.abc import Sequence

ENGINES = ("keras", "keras-eager", "fastgrad", "tf-keras", "torch")
WORKER = "keras_fastgrad.bench.worker"


@dataclasses.dataclass(frozen=True)
class Job:
    """What one worker process is to measure.

    Args:
        workload: Name of the workload.
        variant: Name of the variant, for the row.
        engine: Which library trains, one of `ENGINES`.
        setting: A `Strategy` as it prints, or for torch `"eager"` or
            `"bfloat16"`, `"compiled"` and both joined by a comma.
        steps: Steps to time. Defaults to the workload's own.
        warmup: Steps before the timed ones. Their weights are compared.
        turn: Number of the turn, from 1.
        size: Size along the workload's dimension of growth.
        reference: File with the numbers to compare with.
        save_reference: File to write such numbers to.
        dense_gradients: Whether stock Keras is given dense gradients.
        perturbation: Share by which the first weights are moved.
        tolerance: Relative difference of losses that is right. Defaults to
            that of the setting.
    """

    workload: str
    variant: str
    engine: str
    setting: str = "default"
    steps: int | None = None
    warmup: int = 20
    turn: int = 1
    size: int | None = None
    reference: str | None = None
    save_reference: str | None = None
    dense_gradients: bool = False
    perturbation: float = 0.0
    tolerance: float | None = None

    def arguments(self) -> list[str]:
        """The words of the worker's command line."""
        words = [self.workload, "--variant", self.variant]
        words += ["--engine", self.engine]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value == field.default:
                continue
            words.append("--" + field.name.replace("_", "-"))
            if value is not True:
                words.append(str(value))
        return words

    def command(self) -> str:
        """The line to type to measure this again."""
        return f"python -m {WORKER} {shlex.join(self.arguments())}"

    @classmethod
    def from_arguments(cls, words: Sequence[str] | None = None) -> "Job":
        """The job that a command line spells.

        Args:
            words: The words. Defaults to the process's own.
        """
        parser = argparse.ArgumentParser(
            prog=f"python -m {WORKER}",
            description="Measures one variant of one workload once.",
        )
        parser.add_argument("workload")
        parser.add_argument("--variant", required=True)
        parser.add_argument("--engine", choices=ENGINES, required=True)
        parser.add_argument("--setting", default="default")
        for name in ("steps", "size"):
            parser.add_argument(f"--{name}", type=int)
        parser.add_argument("--warmup", type=int, default=20)
        parser.add_argument("--turn", type=int, default=1)
        parser.add_argument("--perturbation", type=float, default=0.0)
        parser.add_argument("--tolerance", type=float)
        for name in ("reference", "save-reference"):
            parser.add_argument(f"--{name}")
        parser.add_argument("--dense-gradients", action="store_true")
        return cls(**vars(parser.parse_args(words)))
