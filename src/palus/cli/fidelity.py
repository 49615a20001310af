"""`palus fidelity`: is SoccerTwos here the game that Unity's policies were trained in?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from palus.cli.output import matches_progress, numbers_table, percent, print_json, stderr, stdout
from palus.errors import ModelError

if TYPE_CHECKING:
    from palus.arena.referee.result import PairingSummary
    from palus.fidelity.conventions import ConventionResult
    from palus.fidelity.logs import FidelityRow

EPILOG = """
Policies trained in Unity see and act by Unity's conventions and know Unity's physics. If they play here as they did
there, the simulation is faithful: entropy within 0.04 nats of Unity's training log, episode length within 0.75 to 1.4
times. Policies are matched to Unity's published logs by the name of their file.

Examples:

  # each policy against random and against itself
  palus fidelity models/

  # and each against each other
  palus fidelity models/ --cross

  # what breaks when one convention is wrong
  palus fidelity models/ --conventions

  palus fidelity models/ --json
"""


def fidelity(
    folder: Annotated[Path, typer.Argument(help="Folder with .onnx files trained in Unity.")],
    pairs: Annotated[int, typer.Option(min=1, help="Mirrored pairs against random, and for --cross.")] = 200,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each policy against itself.")] = 256,
    conventions: Annotated[
        bool, typer.Option("--conventions", help="Also recompute the table of broken conventions, 64 pairs each.")
    ] = False,
    policy: Annotated[str, typer.Option(help="Policy of the folder that --conventions plays.")] = (
        "unity-official-soccertwos"
    ),
    kick_point: Annotated[
        Literal["ball", "agent"],
        typer.Option(help="Where a kick's contact point lies; Unity's builds and its editor differ."),
    ] = "agent",
    cross: Annotated[bool, typer.Option("--cross", help="Also play each against each other.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Let policies trained in Unity play here and hold what they do against Unity's logs."""
    from palus.arena.models.players import find_players, load_player
    from palus.arena.models.policies import OnnxPlayer
    from palus.arena.referee.games import DEFAULT_GAME, source_of
    from palus.fidelity.conventions import CONVENTIONS, check_conventions
    from palus.fidelity.logs import cross_table, measure

    spec = source_of(DEFAULT_GAME).spec
    random = load_player("random", spec)
    found, rejected = find_players(folder, spec)
    policies = {p.name: p for p in found if isinstance(p, OnnxPlayer)}
    if conventions and policy not in policies:
        raise ModelError(f"{folder}: no policy {policy} for --conventions; there are {', '.join(policies) or 'none'}")
    for reason in rejected:
        stderr.print(f"[yellow]skipped:[/] {escape(reason)}")
    entrants = list(policies.values())
    if not entrants:
        raise ModelError(
            f"{folder}: no policy in it that plays {DEFAULT_GAME}; give a folder with .onnx files from Unity"
        )
    report: dict[str, Any] = {"skipped": rejected}
    with matches_progress("against random and itself", len(entrants) * (2 * pairs + episodes)) as tick:
        rows = report["policies"] = measure(
            entrants, random, pairs, episodes, seed, env_options={"kick_point": kick_point}, progress=tick
        )
    if conventions:
        with matches_progress("broken conventions", 128 * len(CONVENTIONS)) as tick:
            report["conventions"] = check_conventions(policies[policy], random, 64, seed, tick)
    if cross:
        with matches_progress("each against each", pairs * len(entrants) * (len(entrants) - 1)) as tick:
            table = cross_table(entrants, pairs, seed, tick)
        report["cross"] = [{"a": a, "b": b, "summary": summary} for (a, b), summary in table.items()]
    if as_json:
        print_json(report)
        return
    stdout.table(_policy_table(rows))
    if conventions:
        stdout.table(_convention_table(policy, report["conventions"]))
    if cross:
        stdout.table(_cross_table([p.name for p in entrants], table))


def _policy_table(rows: list[FidelityRow]) -> Table:
    columns = ("points v. random", "entropy", "Unity", "episode", "Unity", "ratio", "faithful")
    table = numbers_table("policy", *columns, title="Policies trained in Unity, playing here")
    for row in rows:
        unity = ("-", "-")
        if row.unity is not None:
            low, high = row.unity.episode_length
            unity = (f"{row.unity.entropy:.3f}", f"{low:g}" if low == high else f"{low:g}-{high:g}")
        table.add_row(
            escape(row.name),
            percent(row.against_random.score),
            f"{row.entropy:.3f}",
            unity[0],
            f"{row.episode_length:.1f}",
            unity[1],
            "-" if row.length_ratio is None else f"{row.length_ratio:.2f}",
            {True: "yes", False: "[red]no[/]", None: "-"}[row.faithful],
        )
    return table


def _convention_table(policy: str, rows: list[ConventionResult]) -> Table:
    title = f"{escape(policy)} against random when one convention is wrong: won/lost/drawn"
    table = numbers_table("convention", "blue", "published", "purple", "published", title=title)
    for row in rows:
        cells = (row.blue, row.published_blue, row.purple, row.published_purple)
        table.add_row(row.name, *("/".join(map(str, record)) for record in cells))
    return table


def _cross_table(names: list[str], table: dict[tuple[str, str], PairingSummary]) -> Table:
    columns = [str(number + 1) for number in range(len(names))]
    shown = numbers_table("", *columns, title="Points of the row's policy against the column's, %")
    for number, name in enumerate(names):
        cells = []
        for other in names:
            if (name, other) in table:
                cells.append(f"{100 * table[name, other].score:.0f}")
            elif (other, name) in table:
                cells.append(f"{100 - 100 * table[other, name].score:.0f}")
            else:
                cells.append("")
        shown.add_row(f"{number + 1} {escape(name)}", *cells)
    return shown
