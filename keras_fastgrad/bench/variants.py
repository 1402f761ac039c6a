"""Who takes part: stock Keras, this package, and the peers."""

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence

from keras_fastgrad.bench.peers import TORCH_WORKLOADS
from keras_fastgrad.bench.workloads import Workload
from keras_fastgrad.strategy import Strategy

Settings = Callable[[Workload], tuple[str, ...]]

_MODULES = {"tf-keras": "tf_keras", "torch": "torch"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to train every workload.

    Args:
        name: As rows and tables show it.
        engine: Which library trains; see `job.ENGINES`.
        settings: What it may be set to for a workload. Where there are
            several, short trials find the fastest, and that one is measured.
    """

    name: str
    engine: str
    settings: Settings


def exact_settings(workload: Workload) -> tuple[str, ...]:
    """What `fastgrad="exact"` trains with.

    This version of the package does not search, so the one choice that a
    user has to make by hand is made here: many steps a call where a step is
    short.
    """
    if workload.is_short:
        return (str(Strategy(steps_per_execution=32)),)
    return (str(Strategy()),)


def fast_settings(workload: Workload) -> tuple[str, ...]:
    """What `fastgrad="fast"` may train with: also bfloat16."""
    return tuple(
        str(dataclasses.replace(Strategy.parse(setting), precision=precision))
        for setting in exact_settings(workload)
        for precision in (None, "mixed_bfloat16")
    )


def stock_settings(preset: str) -> Settings:
    """The settings of stock Keras that a user would try.

    Args:
        preset: `"fast"` lets bfloat16 in, `"exact"` does not.
    """
    precisions = (None, "mixed_bfloat16") if preset == "fast" else (None,)

    def settings(workload: Workload) -> tuple[str, ...]:
        tried = [
            Strategy(
                jit_compile=jit_compile,
                precision=precision,
                steps_per_execution=32 if workload.is_short else "auto",
            )
            for precision in precisions
            for jit_compile in (False, True)
        ]
        return ("default", *map(str, tried))

    return settings


def torch_settings(preset: str) -> Settings:
    """The modes of torch that a user would try.

    Args:
        preset: `"fast"` lets bfloat16 in, `"exact"` does not.
    """
    exact = ("eager", "compiled")
    half = ("bfloat16", "bfloat16,compiled")
    return lambda workload: exact + half if preset == "fast" else exact


def named_variants(preset: str) -> dict[str, Variant]:
    """The variants by name, in the order in which they are measured.

    Args:
        preset: `"exact"` or `"fast"`: whether Keras at its best and the
            peers may train in bfloat16.
    """
    stock = stock_settings(preset)
    variants = (
        Variant("keras", "keras", lambda workload: ("default",)),
        Variant("keras-best", "keras", stock),
        Variant("fastgrad-exact", "fastgrad", exact_settings),
        Variant("fastgrad-fast", "fastgrad", fast_settings),
        Variant("tf-keras", "tf-keras", stock),
        Variant("torch", "torch", torch_settings(preset)),
    )
    return {variant.name: variant for variant in variants}


def choose_variants(
    names: Sequence[str] | None, strategies: Sequence[str], preset: str
) -> tuple[Variant, ...]:
    """The variants that a command line asks for.

    Args:
        names: Names, or `None` for all.
        strategies: Strategies in words, each a variant of its own.
        preset: `"exact"` or `"fast"`.

    Raises:
        ValueError: If a name or a strategy is not known.
    """
    known = named_variants(preset)
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise ValueError(
                f"No variant has this name. Received: {name!r}. Choose from "
                f"{', '.join(known)}, or spell a strategy: --strategy "
                "steps_per_execution=32."
            )
    return (
        *(known[name] for name in dict.fromkeys(chosen)),
        *map(of_strategy, strategies),
    )


def of_strategy(text: str) -> Variant:
    """The variant that trains with the strategy that `text` spells.

    Raises:
        ValueError: If it spells none.
    """
    setting = str(Strategy.parse(text))
    return Variant(f"fastgrad: {setting}", "fastgrad", lambda _: (setting,))


def missing_reason(variant: Variant, workload: Workload) -> str | None:
    """Why this variant cannot train this workload here, or `None`."""
    module = _MODULES.get(variant.engine)
    if module and importlib.util.find_spec(module) is None:
        return (
            f"{variant.engine} is not installed. To have it beside the "
            "others: pip install 'keras-fastgrad[bench]'"
        )
    if variant.engine == "torch" and workload.name not in TORCH_WORKLOADS:
        return f"there is no torch version of {workload.name}"
    return None
