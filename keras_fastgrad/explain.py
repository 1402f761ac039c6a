"""What runs and why, laid out as text."""

import dataclasses
import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from keras_fastgrad.strategy import Resolution, as_strategy

WIDTH = 100


def as_text(
    name: str,
    flag: Any,
    resolution: Resolution,
    counts: Mapping[str, float],
) -> str:
    """Lays out a resolved strategy as a table of plain text.

    Args:
        name: The model's name.
        flag: What was asked for.
        resolution: What runs, and the reasons.
        counts: Counters to print beneath.

    Returns:
        Lines of at most 100 columns.
    """
    asked = as_strategy(flag)
    table = Table(title=f"{name}: fastgrad={flag}", title_justify="left")
    table.add_column("field")
    table.add_column("asked")
    table.add_column("runs")
    table.add_column("why")
    for field in dataclasses.fields(asked):
        runs = getattr(resolution.strategy, field.name)
        table.add_row(
            field.name,
            str(getattr(asked, field.name)),
            "layers' own"
            if field.name == "precision" and not runs
            else str(runs),
            resolution.reasons.get(field.name, ""),
        )
    counted = ", ".join(f"{key} {value}" for key, value in counts.items())
    sink = io.StringIO()
    console = Console(file=sink, width=WIDTH, no_color=True)
    console.print(table)
    console.print(f"Counted so far: {counted}", highlight=False)
    if flag == "fast":
        console.print(
            "'fast' runs the exact strategy in this version: the search that "
            "chooses among precisions is not built yet. Pass a Strategy with "
            "precision='mixed_bfloat16' to train in bfloat16.",
        )
    return sink.getvalue().rstrip()
