"""`keras-fastgrad bench`: its options, and what they start."""

import argparse
import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from keras_fastgrad.bench import article, machine, peak, profile, scale, table
from keras_fastgrad.bench.launch import process
from keras_fastgrad.bench.output import Output, progress_of
from keras_fastgrad.bench.runner import Hooks, Plan, process_count, run
from keras_fastgrad.bench.variants import choose_variants, named_variants
from keras_fastgrad.bench.workloads import WORKLOADS, find, growth

INTERRUPTED = 130


def add_parser(commands: Any) -> None:
    """Adds the subcommand `bench`.

    Args:
        commands: What `argparse.ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser(
        "bench",
        help="measure Keras, its peers and this package in one run",
        description="Measures each variant of each workload in a process of "
        "its own, in turns. Ctrl-C keeps what is finished.",
        epilog="workloads: "
        + "; ".join(f"{w.name}: {w.what}" for w in WORKLOADS.values()),
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help="default: all")
    add(
        "--variants",
        type=_comma_separated,
        help=f"some of {','.join(named_variants('fast'))}; default: all",
    )
    add(
        "--strategy",
        action="append",
        default=[],
        metavar="FIELD=VALUE,...",
        help="measure this strategy too; may be given several times",
    )
    add(
        "--preset",
        choices=("exact", "fast"),
        default="fast",
        help="whether keras-best and the peers may train in bfloat16",
    )
    add("--turns", type=_positive, default=None, help="default: 3")
    add("--steps", type=_positive, help="steps to time in each turn")
    add("--quick", action="store_true", help="one turn of a few steps")
    add("--out", type=Path, help="default: bench-results/<date>")
    add(
        "--timeout",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="end a worker after this long; default: 1800",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--scale", metavar="WORKLOAD", help="grow one dimension of a workload"
    )
    kind.add_argument(
        "--profile", metavar="WORKLOAD", help="self time of each op of a step"
    )
    kind.add_argument(
        "--article", action="store_true", help="the article's table, here"
    )
    parser.set_defaults(run=lambda options: run_command(options, parser))


def run_command(
    options: argparse.Namespace, parser: argparse.ArgumentParser
) -> int:
    """Runs the bench.

    Args:
        options: The parsed command line.
        parser: Reports what is wrong with it.

    Returns:
        The exit code: 0, or 130 where Ctrl-C ended the run early.

    Raises:
        SystemExit: With 2 where a name or a strategy is not known.
    """
    try:
        plan = _plan(options)
        if options.scale:
            growth(options.scale)
        if options.profile:
            find(options.profile)
    except ValueError as error:
        parser.error(str(error))
    console = Console()
    output = Output(plan.folder)
    output.record(
        machine.describe({} if options.quick else peak.measured_apart())
    )
    try:
        _measure(options, plan, output, console)
        code = 0
    except KeyboardInterrupt:
        console.print("Interrupted: this is what was finished.")
        code = INTERRUPTED
    _show(options, output, console)
    return code


def _measure(
    options: argparse.Namespace, plan: Plan, output: Output, console: Console
) -> None:
    launch = process(options.timeout)
    total = _process_count(options, plan)
    with progress_of(console, total) as (began, advanced):
        hooks = Hooks(output.record, began, advanced)
        if options.scale:
            scale.run(options.scale, plan.turns, launch, hooks)
        elif options.profile:
            profile.run(options.profile, options.timeout, hooks)
        elif options.article:
            article.run(plan.steps, plan.turns, launch, hooks)
        else:
            run(plan, launch, hooks)


def _process_count(options: argparse.Namespace, plan: Plan) -> int:
    if options.scale:
        return scale.process_count(options.scale, plan.turns)
    if options.profile:
        return len(profile.ENGINES)
    if options.article:
        return article.process_count(plan.turns)
    return process_count(plan)


def _show(
    options: argparse.Namespace, output: Output, console: Console
) -> None:
    for kind in (scale, profile, article, table):
        kind.show(output.records, console)
    console.print(f"Records: {output.path}")
    rows = output.write_csv()
    if rows:
        console.print(f"Table: {rows}")


def _plan(options: argparse.Namespace) -> Plan:
    names = tuple(dict.fromkeys(options.workloads)) or tuple(WORKLOADS)
    for name in names:
        find(name)
    today = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    return Plan(
        workloads=names,
        variants=choose_variants(
            options.variants, options.strategy, options.preset
        ),
        turns=options.turns or (1 if options.quick else 3),
        steps=options.steps,
        folder=options.out or Path("bench-results") / today,
        quick=options.quick,
    )


def _comma_separated(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(
            f"takes an int of at least 1. Received: {text}"
        )
    return number
