"""`palus sweep`: many trials of a run file, on one machine or many, until the best numbers are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from palus.cli.options import MOST_MINUTES, MOST_STEPS, FileFirst, TrustOption, told_where
from palus.cli.output import EXIT_INTERRUPTED, print_json, progress_bar, stderr, stdout, typed
from palus.errors import ConfigError
from palus.processes import require_fork
from palus.trust import Trust

if TYPE_CHECKING:
    import optuna

    from palus.sweep.plan import Plan

EPILOG = """
Takes `pip install "palus[train,sweep]"`. space.yaml says what varies:

  behaviors.SoccerTwos.hyperparameters.learning_rate: {log: [1e-5, 1e-3]}
  behaviors.SoccerTwos.hyperparameters.num_epoch: {int: [1, 10]}
  behaviors.SoccerTwos.network_settings.hidden_units: {choice: [64, 128, 256]}

Examples:

  # forty trials of five minutes each
  palus sweep soccertwos-fast --space space.yaml --minutes 5 --trials 40

  palus sweep cup.yaml --objective reward --steps 1e6 --seeds 3

  # typed again elsewhere, it joins
  palus sweep cup.yaml --study postgresql+psycopg://lab/sweeps

  # the table, while it runs and after
  palus sweep status results/cup/study.db

  # pictures and the best run file, by now
  palus sweep show results/cup/study.db

Ctrl-C puts the trial back, and the same command goes on. All of it: docs/sweep.md.
"""


app = typer.Typer(
    cls=FileFirst, help="Find the best numbers of a run file: many trials, on any number of machines.",
    no_args_is_help=True, epilog=EPILOG,
)  # fmt: skip

StudyArgument = Annotated[
    str, typer.Argument(help="Database URL of the study, its SQLite file, or the sweep's folder.", metavar="URL")
]
NameOption = Annotated[str | None, typer.Option(help="Name of the study; needed where there are several.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the trials as JSON.")]


@app.command(epilog=EPILOG)
def run(
    file: Annotated[str, typer.Argument(help="Run file, or the name of a preset.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes by dotted path, the same in all trials.")
    ] = None,
    space: Annotated[Path, typer.Option(help="YAML file of the keys that vary.")] = Path("space.yaml"),
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="What is best when highest: win_rate, rating, elo, reward, group_reward or true_objective; of one "
            "opponent or behavior: win_rate:ball-chaser. Several are weighed against one another. Default: win_rate."
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Database URL, or an SQLite file; default: study.db in the sweep's folder.", metavar="URL"),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the study, those of all machines together.")] = 30,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per trial, averaged; all have the same seeds.")] = 1,
    steps: Annotated[
        float | None, typer.Option(min=1, max=MOST_STEPS, help="Trainer steps per run; default: its max_steps.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, max=MOST_MINUTES, help="Minutes of each run at most; 0 means no limit.")
    ] = 0.0,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="End trials early that others outdo.")] = True,
    name: Annotated[str | None, typer.Option(help="Name of the study and of its folder; default: the file's.")] = None,
    results_dir: Annotated[Path, typer.Option(help="Where the sweep's folder is.")] = Path("results"),
    heartbeat: Annotated[
        int, typer.Option(min=1, help="Seconds between signs of life; a worker silent for four of them is dead.")
    ] = 30,
    trust: TrustOption = None,
) -> None:
    """Train a run file again and again with other numbers. The same command on another machine joins.

    Every trial is an ordinary run in the sweep's folder; curves, importances and the best run file come out.
    """
    require_fork("a sweep")
    name = _name_of(file, name)
    folder, trusted = results_dir / name, Trust.of(trust or [], overrides or [])
    _require()
    from palus.run.session import interruptible
    from palus.sweep.plan import make_plan
    from palus.sweep.study import Worker, make_study, opened_storage, own_folder, refuse_folder

    with told_where(file):
        plan = make_plan(
            file, overrides or [], space, objective or ["win_rate"], trusted,
            seeds=seeds, steps=None if steps is None else int(steps), minutes=minutes, prunes=prune,
            heartbeat_s=heartbeat,
        )  # fmt: skip
    refuse_folder(folder)  # before a study is made that nobody works on
    with opened_storage(study or str(folder / "study.db"), heartbeat) as storage:
        kept = make_study(storage, name, plan)
        own_folder(folder, kept)
        if len(plan.objectives) > 1 and prune:
            stderr.print("Of several objectives none decides alone, so no trial is pruned.")
        with interruptible() as stopped, progress_bar("trial", 1.0) as update:
            worker = Worker(
                storage, kept, plan, folder, trials, trusted, stopped,
                tell=lambda line: stderr.print(escape(line)),
                show=lambda number, share: update(description=f"trial {number}", completed=share),
            )  # fmt: skip
            done = worker.work()
        _show(kept, plan, folder)
    if not done:
        stderr.print("Interrupted. The same command goes on.")
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command(epilog=EPILOG)
def status(study: StudyArgument, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Show the table of a study's trials."""
    with _opened(study, name) as (kept, plan):
        _table(kept, plan, as_json)


@app.command(epilog=EPILOG)
def show(
    study: StudyArgument,
    name: NameOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the pictures and of the best run file; default: the sweep's, where its database lies in "
            "it, else results/NAME."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write pictures and the best run file of a study as it is now, and show its table."""
    with _opened(study, name) as (kept, plan):
        from palus.sweep.study import holds, own_folder

        folder = output or Path(_file_in(study.removeprefix("sqlite:///"))).parent
        if output is None and not holds(folder, kept):
            folder = Path("results") / _name_of("", kept.study_name)
            own_folder(folder, kept)
        _show(kept, plan, folder, as_json)


@contextmanager
def _opened(url: str, name: str | None) -> Iterator[tuple[optuna.Study, Plan]]:
    """A study that is there, and its plan, while the block runs."""
    _require()
    url = _file_in(url.removeprefix("sqlite:///"))
    from palus.sweep.study import find_study, opened_storage, plan_of

    if "://" not in url and not Path(url).is_file():
        found = "found a folder without study.db" if Path(url).is_dir() else "no such file"
        raise ConfigError(f"{url}: {found}; give the database URL of the study, or its SQLite file (FOLDER/study.db)")
    with opened_storage(url, create=False) as storage:
        kept = find_study(storage, name)
        yield kept, plan_of(kept)


def _file_in(study: str) -> str:
    """The database in a sweep's folder; anything else as it is."""
    own = Path(study) / "study.db"
    return str(own) if "://" not in study and own.is_file() else study


def _require() -> None:
    """Raises ConfigError where the extra is not installed."""
    missing = [name for name in ("matplotlib", "optuna") if find_spec(name) is None]
    if missing:
        raise ConfigError(f'sweeps need {" and ".join(missing)}: pip install "palus[train,sweep]"')


def _name_of(file: str, name: str | None) -> str:
    """Name of study and folder. Raises ConfigError."""
    found = name or Path(file).stem
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", found):
        raise ConfigError(f"--name {found}: expected letters, digits, '.', '-' and '_', at most 64")
    return found


def _show(kept: optuna.Study, plan: Plan, folder: Path, as_json: bool = False) -> None:
    from palus.sweep.outcome import write_outcome

    _table(kept, plan, as_json)
    written, best = write_outcome(kept, plan, folder), folder / "best.yaml"
    for path in written:
        stderr.print(escape(str(path)))
    if best in written:
        stderr.print(f"Next:      palus train {typed(best)}")


def _table(kept: optuna.Study, plan: Plan, as_json: bool) -> None:
    from palus.sweep.outcome import rows
    from palus.sweep.study import describe

    trials = rows(kept, plan)
    if as_json:
        print_json(trials)
        return
    table = Table("trial", "state", *(str(own) for own in plan.objectives), "done", "values", "where")
    for row in trials:
        values = ["-" if value is None else f"{value:.4g}" for value in row.values]
        told = "; ".join(filter(None, [describe(row.labels), row.why]))
        table.add_row(
            f"{row.number}{' *' if row.best else ''}", row.state, *values, f"{row.done:.0%}",
            escape(told), escape(row.where), style="bold" if row.best else None,
        )  # fmt: skip
    stdout.table(table)
