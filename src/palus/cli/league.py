"""`palus league`: several runs that meet each other's snapshots, on one machine or on many."""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from palus.cli.options import FileFirst, TrustOption, told_where
from palus.cli.output import EXIT_INTERRUPTED, print_json, stderr, stdout
from palus.errors import ConfigError, StorageError
from palus.processes import require_fork
from palus.trust import Trust

EPILOG = """
Takes `pip install "palus[train]"`; URLs and --cluster take `palus[cluster]`. Runs that differ stand in the run file:

  palus: {league: {runs: {one: {}, two: {palus.league.opponents: pfsp_hard}}}}

Examples:

  # all runs of the file, on this machine; typed again, it goes on
  palus league cup.yaml

  # four alike but for their seeds
  palus league soccertwos --runs 4

  # runs, steps, ratings, while it trains and after
  palus league status results/soccertwos

  # the same as a live page
  palus watch results/soccertwos

  # one of them, on another machine
  palus league cup.yaml --storage s3://bucket/cup --only two

  # on the machines of a Ray cluster, which this one belongs to
  palus league cup.yaml --cluster auto --storage s3://bucket/cup

Ctrl-C saves all runs. All of it: docs/machines.md.
"""

app = typer.Typer(
    cls=FileFirst, help="Train several runs that meet each other's snapshots, on one machine or many.",
    no_args_is_help=True, epilog=EPILOG,
)  # fmt: skip


@app.command(epilog=EPILOG)
def run(
    file: Annotated[str, typer.Argument(help="Run file, or the name of a preset.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes by dotted path, the same in all runs.")] = None,
    runs: Annotated[
        int | None, typer.Option(min=2, help="So many runs, alike but for their seeds; else the file names them.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Train this run of the league here. Repeatable.")] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Folder or URL where the runs meet, and where their checkpoints are kept (s3://bucket/cup); default: "
            "the league's folder.",
            metavar="URL",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Place the runs on a Ray cluster: `auto`, or its address. Takes --storage.", metavar="RAY"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the league and of its folder; default: the file's.")] = None,
    results_dir: Annotated[str, typer.Option(help="Where the league's folder is.")] = "results",
    force: Annotated[bool, typer.Option("--force", help="Begin anew, and remove what the runs left.")] = False,
    trust: TrustOption = None,
) -> None:
    """Train several runs of one file at once; each meets the others' snapshots like its own past.

    A run that dies goes on from its checkpoint, and the same command goes on with all of them.
    """
    require_fork("a league")
    from palus.cluster.plan import make_plan
    from palus.run.session import interruptible

    given = [f"checkpoint_settings.results_dir={json.dumps(results_dir)}"]
    given.append(f"checkpoint_settings.run_id={json.dumps(name or Path(file).stem)}")
    trusted = Trust.of(trust or [], overrides or [])
    if cluster is not None and storage is None:
        raise ConfigError(
            "--cluster: its machines meet on a storage that all reach; give --storage, as s3://bucket/cup"
        )
    with told_where(file):
        plan = make_plan(
            file, [*given, *(overrides or [])], number=runs, storage=storage, only=only or [],
            cores=0 if cluster is not None else os.cpu_count() or 1, trust=trusted,
        )  # fmt: skip
    if force:
        plan.clear()
    width = max(map(len, ("league", *plan.runs)))

    def tell(own: str, line: str) -> None:
        stderr.print(f"[bold]{own:<{width}}[/] {escape(line)}")

    tell("league", f"{', '.join(plan.runs)}; status: palus league status {shlex.quote(plan.storage)}")
    with interruptible() as stopped:
        if cluster is None:
            from palus.cluster.local import play_league

            endings = play_league(plan, trusted, stopped, tell)
        else:
            try:
                from palus.cluster.on_ray import play_league as play_on_ray
            except ImportError as error:
                raise ConfigError(
                    f'--cluster takes more than is installed ({error}): pip install "palus[cluster]"'
                ) from error
            endings = play_on_ray(plan, trusted, cluster, stopped, tell)
    for own, ending in endings.items():
        if ending.failure:
            stderr.print(f"[bold red]{own}:[/] {escape(ending.failure)}")
    try:
        _show(plan.storage, as_json=False)
    except (ConfigError, StorageError) as error:  # nothing was told yet, or the storage is away
        stderr.print(f"[yellow]warning:[/] {escape(str(error))}")
    if stopped():
        stderr.print("Interrupted. The same command goes on.")
        raise typer.Exit(EXIT_INTERRUPTED)
    if any(ending.failure for ending in endings.values()):
        raise typer.Exit(1)


@app.command(epilog=EPILOG)
def status(
    place: Annotated[str, typer.Argument(help="The league's folder, or its --storage.", metavar="PLACE")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Show the runs of a league, from its book alone: while it trains and after, from any machine that reaches it."""
    _show(place, as_json)


@dataclass(frozen=True)
class RunStatus:
    """A run as the book has it. host, step: where and how far it was seen last; checkpoint: what it can go on from.
    rating: mean, low, high. left_out: lines of its book that say nothing."""

    run: str
    host: str | None
    state: str
    step: int
    max_steps: int
    checkpoint: int
    steps_per_second: float | None
    snapshots: int
    matches: int
    rating: tuple[float, float, float] | None
    last_seen_s: float | None
    left_out: int


def status_of(place: str) -> list[RunStatus]:
    """The runs of a league. Raises ConfigError where nobody told anything, StorageError."""
    from palus.league.records import LeagueRecord
    from palus.store.depot import Depot

    record, now = LeagueRecord(Depot(place)).read(), time.time()
    if not record.runs:
        raise ConfigError(f"{place}: no league has told anything here; give its folder, or what --storage says")
    ratings = record.ratings()
    return [
        RunStatus(
            name, None if own.seen is None else own.seen.host, own.state(now), own.step, own.goal,
            own.saved, None if own.seen is None else own.seen.speed, len(own.snapshots), own.matches,
            ratings.get(name), None if own.last_seen is None else max(0.0, now - own.last_seen), own.left_out,
        )
        for name, own in record.runs.items()
    ]  # fmt: skip


def _show(place: str, as_json: bool) -> None:
    from palus.league.records import lines_left_out

    rows = status_of(place)
    if as_json:
        print_json(rows)
        return
    heads = ("run", "state", "steps", "of", "steps/s", "matches", "rating", "seen")
    table = Table(*(Column(head, justify="left" if k < 2 else "right", no_wrap=True) for k, head in enumerate(heads)))
    for row in rows:
        mean, _, high = row.rating or (0.0, 0.0, 0.0)
        table.add_row(
            escape(row.run), row.state, f"{row.step:,}", f"{row.max_steps:,}",
            "-" if row.steps_per_second is None else f"{row.steps_per_second:,.0f}", f"{row.matches:,}",
            "-" if row.rating is None else f"{mean:.0f} ± {high - mean:.0f}",
            "-" if row.last_seen_s is None else f"{row.last_seen_s:.0f} s",
        )  # fmt: skip
    stdout.table(table)
    for row in rows:
        if row.left_out:
            stderr.print(escape(lines_left_out(row.run, row.left_out)))
