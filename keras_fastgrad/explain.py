"""What runs and why, laid out as text."""

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from keras_fastgrad.gradients.rewrites import Plan
from keras_fastgrad.optimizers.rows.plan import RowPlan
from keras_fastgrad.optimizers.rows.tables import Tables
from keras_fastgrad.resolution import Resolution
from keras_fastgrad.strategy import NOT_BUILT, as_strategy

WIDTH = 100
_FIELDS = (
    "jit_compile",
    "precision",
    "gradients",
    "optimizer_update",
    "sparse_update",
    "steps_per_execution",
)


def as_text(
    name: str,
    flag: Any,
    resolution: Resolution,
    plan: Plan,
    tables: Tables,
    counts: Mapping[str, float],
) -> str:
    """Lays out a resolved strategy as a table of plain text.

    Args:
        name: The model's name.
        flag: What was asked for.
        resolution: What runs, and the reasons.
        plan: Which layers have a fast gradient, and which not.
        tables: What the traced step made of embeddings updated by the row.
        counts: Counters to print beneath.

    Returns:
        Lines of at most 100 columns.
    """
    asked = as_strategy(flag)
    table = Table(title=f"{name}: fastgrad={flag}", title_justify="left")
    for heading in ("field", "asked", "runs", "why"):
        table.add_column(heading)
    for field in _FIELDS:
        runs = getattr(resolution.strategy, field)
        table.add_row(
            field,
            str(getattr(asked, field)),
            "layers' own" if runs is None else str(runs),
            resolution.reasons.get(field, ""),
        )
    sink = io.StringIO()
    console = Console(file=sink, width=WIDTH, no_color=True)
    console.print(table)
    for line in [
        *_of_plan(plan),
        *_of_rows(resolution.rows, tables),
        *_lines_beneath(flag, counts),
    ]:
        console.print(line, highlight=False)
    return sink.getvalue().rstrip()


def _of_plan(plan: Plan) -> list[str]:
    by_ops = {path: ", ".join(ops) for path, ops in plan.fast.items()}
    fast = [f"{paths} ({ops})" for ops, paths in _grouped(by_ops).items()]
    return [
        f"Layers with a fast gradient: {'; '.join(fast) or 'none'}.",
        *(f"{paths}: {why}." for why, paths in _grouped(plan.keras).items()),
    ]


def _grouped(by_path: Mapping[str, str]) -> dict[str, str]:
    """The paths of each value, in a line."""
    paths: dict[str, list[str]] = {}
    for path, value in by_path.items():
        paths.setdefault(value, []).append(path)
    return {value: ", ".join(those) for value, those in paths.items()}


def _of_rows(rows: RowPlan, tables: Tables) -> list[str]:
    whole = {**rows.dense, **tables.left_out}
    paths = [layer.path for layer in rows.layers if layer.path not in whole]
    return [
        *([f"Updated by the row: {'; '.join(paths)}."] if paths else []),
        *(f"{path}: updated whole; {why}." for path, why in whole.items()),
        *(
            f"{path}: the step also uses all its rows, for a tied head say. "
            "Their gradient is dense, so each step moves and costs all of them."
            for path in tables.used_whole
        ),
    ]


def _lines_beneath(flag: Any, counts: Mapping[str, float]) -> list[str]:
    counted = ", ".join(f"{key} {value}" for key, value in counts.items())
    lines = [
        f"Counted so far: {counted}.",
        "Fields that take only their neutral value yet: "
        f"{', '.join(NOT_BUILT)}.",
    ]
    if flag == "fast":
        lines.append(
            "'fast' runs the exact strategy in this version: the search that "
            "chooses among precisions is not built yet. Pass a Strategy with "
            "precision='mixed_bfloat16' to train in bfloat16."
        )
    return lines
