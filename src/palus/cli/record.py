"""`palus record`: an expert's episodes in a demonstration file, for GAIL and behavioral cloning."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus.cli.options import EpisodeSeedOption, TrustOption, told_where
from palus.cli.output import end_early, matches_progress, stdout
from palus.errors import EnvError
from palus.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from palus.arena.models.players import Bot
    from palus.envs import GameSource
    from palus.run.evaluate import Decide
    from palus.unity.demonstrations import ExpertEpisode

EPILOG = """
EXPERT is a run's folder, or a scripted player of the game that --game names. It plays all sides.

Examples:

  # what a trained policy does in its own game
  palus record results/mine Mine.demo --episodes 50

  # what a house bot does
  palus record ball-chaser Chaser.demo --game SoccerTwos

Learn from it: behavioral_cloning: {demo_path: Mine.demo}, or reward_signals: {gail: {demo_path: Mine.demo}}.
"""


def record(
    expert: Annotated[str, typer.Argument(metavar="EXPERT", help="A run's folder, or a scripted player.")],
    file: Annotated[Path, typer.Argument(metavar="FILE.demo", help="Where the demonstrations go.")],
    game: Annotated[str | None, typer.Option(help="What a scripted player plays.")] = None,
    behavior: Annotated[str | None, typer.Option(help="Whose agents, in a game of several behaviors.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of one agent each.")] = 20,
    seed: EpisodeSeedOption = 0,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Take the likeliest action.")] = False,
    trust: TrustOption = None,
) -> None:
    """Record an expert's episodes in ML-Agents' format, for imitation here or by ML-Agents itself."""
    from palus.run.demonstrate import play_episodes
    from palus.run.session import interruptible
    from palus.unity.demonstrations import write_demonstrations

    trusted = Trust.of(trust or [])
    source, experts = _scripted(expert, game) if game else _trained(Path(expert), seed, deterministic, trusted)
    names = [kind.name for kind in source.spec.behaviors]
    if behavior not in names and (behavior is not None or len(names) > 1):
        given = "--behavior" if behavior is None else f"--behavior {behavior!r:.80}"
        raise EnvError(f"{given}: {source.env_id} has {', '.join(names)}; name one of them")
    chosen = source.spec.behavior(names[0] if behavior is None else behavior)
    progress = matches_progress(source.env_id, episodes, "episodes")
    with closing(source.batch(1)) as env, interruptible() as pressed, progress as tick:
        played = _until(pressed, episodes, play_episodes(env, chosen, experts, seed), tick)
        decisions, ended = write_demonstrations(file, chosen, chosen.name or source.env_id, played)
    stdout.print(f"{escape(str(file))}: {decisions:,} decisions in {ended:,} episodes of {escape(source.env_id)}.")
    if ended < episodes:
        end_early(ended, episodes, "episodes")


def _until(
    pressed: Callable[[], bool], episodes: int, played: Iterable[ExpertEpisode], tick: Callable[[int], None]
) -> Iterator[ExpertEpisode]:
    """So many of them, or as many as were over when somebody pressed Ctrl-C, one at least."""
    for number, episode in enumerate(played, 1):
        yield episode
        tick(1)
        if number == episodes or pressed():
            return


def _scripted(name: str, game: str) -> tuple[GameSource, Bot]:
    from palus import envs
    from palus.arena.models.players import Bot

    declared = envs.arena_games().get(game)
    if declared is None or name not in declared.bots:
        there = f"{game} has {', '.join(declared.bots)}" if declared is not None else f"{game} has none"
        raise EnvError(f"{name}: no scripted player; {there}. A trained one is a run's folder, without --game")
    return envs.GameSource(game, declared.options), Bot(name, declared.bot(name))


def _trained(folder: Path, seed: int, deterministic: bool, trust: Trust) -> tuple[GameSource, Mapping[str, Decide]]:
    from palus import envs
    from palus.run.agents import open_agent

    games = [name for name, declared in envs.arena_games().items() if folder.as_posix() in declared.bots]
    if games and not folder.exists():
        raise EnvError(f"{folder}: a scripted player; say what it plays: --game {' or --game '.join(games)}")
    with told_where(folder):
        agent = open_agent(folder, "latest", trust)
    assert agent.source is not None, "`open_agent` refuses games that talk"
    return agent.source, agent.players(seed, deterministic)
