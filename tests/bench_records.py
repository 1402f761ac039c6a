"""A bench run that nobody ran, as varied as its readers need."""

import random
from typing import Any

from keras_fastgrad.reports import records

SPELLED = "jit_compile=True, precision=mixed_float16, steps_per_execution=8"

# Strategy, cost against stock Keras, weight difference, tolerance, verdict.
VARIANTS: dict[str, tuple[str, float, float | None, float | None, str]] = {
    "keras": ("", 1.0, None, None, "reference"),
    "keras-best": ("jit_compile=True", 0.6, 2e-7, 1e-3, "right"),
    "fastgrad-exact": ("steps_per_execution=32", 0.4, 2e-7, 1e-3, "right"),
    "fastgrad-fast": ("precision=mixed_bfloat16", 0.35, 3e-3, 2e-2, "right"),
    SPELLED: (SPELLED, 0.2, 0.7, 2e-2, "wrong"),
    "torch": ("compiled, bf16 autocast", 0.3, None, None, "unchecked"),
}

RUN = records.Run(
    command="keras-fastgrad bench mlp cnn lstm --turns 3 --out run.jsonl",
    date="2026-11-30T22:58:45+00:00",
    processor="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    cores=2,
    memory_gb=15.6,
    versions={"keras": "3.15.1", "tensorflow": "2.21.0", "torch": "2.13.0"},
)


def row(workload: str = "mlp", variant: str = "keras", **changes: Any) -> Any:
    """One row, all of whose figures are plain unless changed."""
    values = {
        "turn": 0,
        "strategy": "",
        "steps": 600,
        "step_ms_p20": 9.0,
        "step_ms_p50": 10.0,
        "step_ms_p80": 11.0,
        "samples_per_second": 3200.0,
        "compile_seconds": 1.5,
        "peak_mb": 800.0,
        "final_loss": 0.3124,
        "command": f"keras-fastgrad bench {workload} --variant {variant}",
    }
    return records.Row(workload, variant, **{**values, **changes})


def bench_run(turns: int = 3, **workloads: float) -> list[records.Record]:
    """All kinds of records.

    Args:
        turns: Turns of each variant.
        **workloads: Milliseconds a step of stock Keras on each workload.
    """
    draw = random.Random(1)
    workloads = workloads or {"mlp": 0.86, "cnn": 36.0, "lstm": 34.0}
    rows = [
        _measured(draw, workload, variant, turn, ms)
        for turn in range(turns)
        for workload, ms in workloads.items()
        for variant in VARIANTS
    ]
    missing = [
        records.Missing(workload, "tf-keras", "tf_keras is not installed")
        for workload in workloads
    ]
    return [RUN, *rows, *missing, *_growth(draw), *_profile(), *_article()]


def _measured(
    draw: random.Random, workload: str, variant: str, turn: int, ms: float
) -> records.Row:
    strategy, cost, difference, tolerance, verdict = VARIANTS[variant]
    ms *= cost * draw.uniform(0.93, 1.07)
    wrong = "Loss 1.91 against 0.3124 of stock Keras."
    return row(
        workload,
        variant,
        turn=turn,
        strategy=strategy,
        step_ms_p20=0.95 * ms,
        step_ms_p50=ms,
        step_ms_p80=1.07 * ms,
        samples_per_second=32e3 / ms,
        compile_seconds=0.8 / cost,
        peak_mb=620 + 100 * cost + turn,
        max_weight_difference=difference,
        tolerance=tolerance,
        verdict=verdict,
        note=wrong if verdict == "wrong" else "",
        step_ms=[
            [step, ms * draw.lognormvariate(0, 0.04) * (9 if at == 40 else 1)]
            for at, step in enumerate(range(0, 600, 8))
        ],
        switches=_SWITCHES if variant == "fastgrad-fast" else [],
    )


_SWITCHES = [
    [200, "precision=float32", "the loss scale reached its floor"],
    [400, "precision=mixed_bfloat16", "the switch did not pay"],
]


def _growth(draw: random.Random) -> list[records.ScalePoint]:
    return [
        records.ScalePoint(
            "recsys_pool",
            "table rows",
            size,
            variant,
            turn,
            step_ms_p50=(3 + slope * size / 8000) * draw.uniform(0.95, 1.1),
            peak_mb=600 + size * (1 + slope) * 0.0008,
        )
        for size in (20_000, 100_000, 500_000, 1_000_000, 3_000_000)
        for variant, slope in (("keras", 1), ("fastgrad-exact", 0))
        for turn in range(3)
    ]


def _profile() -> list[records.ProfileEntry]:
    spent = {
        "_FusedConv2D": (9.1, 9.0),
        "Conv2DBackpropFilter": (8.2, 8.1),
        "Conv2DBackpropInput": (6.0, 6.1),
        "Mul": (3.0, 0.4),
        "AssignSubVariableOp": (2.2, 0.0),
        "MaxPoolGrad": (1.9, 1.8),
        "ResourceApplyAdam": (0.0, 0.7),
        "Sqrt": (0.9, 0.0),
        "Relu": (0.5, 0.5),
        "BiasAddGrad": (0.4, 0.4),
    }
    return [
        records.ProfileEntry("cnn", variant, op, 4.0, ms, ms / 32)
        for op, times in spent.items()
        for variant, ms in zip(("keras", "fastgrad-exact"), times)
        if ms
    ]


def _article() -> list[records.ArticleRow]:
    row = records.ArticleRow
    return [
        row("graph against eager", "ms a step", 28, 14, 0.5, 41, 0.9, 0.978),
        row("attention gradient", "ms", None, None, 0.2, 97, 72, 0.258),
        row("input", "% in use", 65, 88, None, 41, 79, -0.93, "more is better"),
        row("recommender", "h an epoch", 4.2, 1.47, 0.65, 0.9, 0.01, 0.989),
    ]
