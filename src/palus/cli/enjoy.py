"""`palus enjoy`: let a trained agent play, measure it, film it, publish it."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus.cli.options import EpisodeSeedOption, TrustOption, told_where
from palus.cli.output import can_keep, check_place, matches_progress, print_json, stdout
from palus.envs import ADAPTERS, arena_games
from palus.errors import EnvError, HubError
from palus.terminal import Terminal
from palus.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from palus.hub.score import AgentScore
    from palus.run.agents import Playable
    from palus.run.evaluate import Evaluation

EPILOG = """
RUN is a run's folder, an experiment that Sample Factory trained, or OWNER/NAME of a published agent, which is fetched
into the folder NAME first.

Examples:

  # 10 episodes, the first ones as replay.mp4
  palus enjoy results/doom-health-gathering-supreme

  # the score for a model card
  palus enjoy results/mine --max-num-episodes 100 --no-render

  palus enjoy results/mine --best --deterministic --video best.mp4

  # in the Unity game that it was trained in
  palus enjoy results/mine --env Builds/Game

  # measure, film and publish
  palus enjoy results/mine --max-num-episodes 100 --push-to-hub ada/doom
"""

VIDEO_FRAMES = 6300
"""Three minutes of Doom."""


def enjoy(
    run: Annotated[str, typer.Argument(help="A run's folder, or OWNER/NAME of a published agent.", metavar="RUN")],
    max_num_episodes: Annotated[
        int,
        typer.Option(min=1, help="Episodes to play, one of each agent; at least so many, since matches are whole."),
    ] = 10,
    max_num_frames: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop after so many engine frames; decisions of agents where one takes a frame, and in Unity."
        ),
    ] = None,
    no_render: Annotated[bool, typer.Option("--no-render", help="Make no video.")] = False,
    video: Annotated[Path | None, typer.Option(help="Where the video goes; default replay.mp4 in the folder.")] = None,
    video_frames: Annotated[int, typer.Option(min=1, help="Pictures that the video holds at most.")] = VIDEO_FRAMES,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Take the likeliest action.")] = False,
    best: Annotated[bool, typer.Option("--best", help="The best policy of the run instead of the newest.")] = False,
    games: Annotated[int, typer.Option(min=1, help="Games side by side; speed, never results.")] = 8,
    seed: EpisodeSeedOption = 0,
    push_to_hub: Annotated[str | None, typer.Option(help="Publish run, score and video.", metavar="OWNER/NAME")] = None,
    hub: Annotated[str | None, typer.Option(help="huggingface.co, http://host:port, or folder:PATH.")] = None,
    env: Annotated[
        str | None, typer.Option(help="The Unity executable that it was trained in; `UnityEditor` for the Editor.")
    ] = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Let an agent play whole episodes: mean and standard deviation of its true objective, and a video.

    In a game of several behaviors each agent plays by its own behavior's policy.
    """
    from palus.cli.players import local_folder
    from palus.cli.push import push, sign_in
    from palus.hub.publish import check_id
    from palus.hub.score import EVALUATION, VIDEO
    from palus.hub.target import parse_target

    trusted = Trust.of(trust or [])
    folder = local_folder(run, hub)
    with Terminal(stderr=True).status("Loading PyTorch and the agent"):
        from palus.run.talking_agent import NO_PICTURES, open_player

        with told_where(folder):
            agent = open_player(folder, "best" if best else "latest", trusted, env)
    if video is not None and agent.source is None:
        raise EnvError(f"--video {video}: {NO_PICTURES}")
    if video is not None and agent.source is not None and agent.source.prefers_batch:  # `OneMatch` draws nothing
        ranked = agent.env_id in arena_games()
        remedy = "palus match --replay, then palus watch, show its matches" if ranked else "leave it out"
        raise EnvError(f"--video {video}: {agent.env_id} draws no pictures; {remedy}")
    if video is not None and not (no_render or agent.draws):
        _check_pictures(agent, folder, video)
    if push_to_hub is not None:  # before the work: packages, token and rights
        if not agent.is_ours:
            raise HubError("--push-to-hub publishes runs of palus; Sample Factory publishes its own experiments")
        target = parse_target(hub)
        check_id(target, push_to_hub)
        sign_in(target, push_to_hub)
        check_place(folder / EVALUATION, "the run: what is published is written there first")
    # Games that draw no pictures of their own accord are filmed only into a file that was named.
    place = None if no_render else video or (folder / VIDEO if agent.draws else None)
    keeps = agent.is_ours and can_keep(folder, "the score is told here, and not kept for its card")
    players = agent.players(seed, deterministic)
    play = partial(agent.evaluate, players, episodes=max_num_episodes, seed=seed)
    evaluation = _play(agent, play, max_num_episodes, games, max_num_frames, place, video_frames)
    score = _score(agent, evaluation, deterministic)
    if as_json:
        _print_json(agent, evaluation, score, place)
    else:
        _print(agent, evaluation, score, place)
    if keeps and score is not None:  # after it was told: a disk may have become full
        _keep(folder, score)
    if push_to_hub is not None:
        push(folder, push_to_hub, hub)


def _check_pictures(agent: Playable, folder: Path, video: Path) -> None:
    """That its game has a picture to film, for before the work. Raises EnvError."""
    assert agent.source is not None, "a game that talks has none"
    with closing(agent.source.single()) as game:
        game.reset(0)
        try:
            game.render()
        except EnvError as error:
            where = f" in palus.env_options of {folder / 'configuration.yaml'}" if agent.env_id in ADAPTERS else ""
            raise EnvError(f"--video {video}: {error}{where}") from error


def _play(
    agent: Playable,
    play: Callable[..., Evaluation],
    episodes: int,
    games: int,
    max_frames: int | None,
    place: Path | None,
    pictures: int,
) -> Evaluation:
    from palus.video import video_file

    spec = agent.spec
    # Games with a recorder give every engine frame, others one picture per decision.
    fps = spec.fps if agent.draws else spec.fps / spec.frameskip
    with nullcontext() if place is None else video_file(place, fps, pictures) as write:
        with matches_progress(agent.env_id, episodes, "episodes") as tick:
            evaluation = play(games=games, max_frames=max_frames, progress=lambda end: tick(1))
        if write is not None:
            # Played once more: drawing every frame moves the face in Doom's status bar, and an agent may see it.
            limit = min(pictures * spec.num_agents * round(spec.fps / fps), max_frames or evaluation.frames)
            with Terminal(stderr=True).status("Filming the first episodes"):
                play(games=1, max_frames=limit, recorder=write)
    return evaluation


def _score(agent: Playable, evaluation: Evaluation, deterministic: bool) -> AgentScore | None:
    """What a model card is to say; None when no episode came to its end."""
    from palus.hub.score import AgentScore

    if not evaluation.episodes:
        return None
    return AgentScore(
        agent.env_id,
        len(evaluation.episodes),
        evaluation.mean,
        evaluation.std,
        evaluation.mean_reward,
        agent.steps,
        deterministic,
        agent.kind == "best",
    )


def _keep(folder: Path, score: AgentScore) -> None:
    """Beside the run, where `palus push` looks for it."""
    from palus.files import write_text
    from palus.hub.score import EVALUATION
    from palus.run.folder import OwnFiles

    write_text(OwnFiles(folder).add(folder / EVALUATION), json.dumps(asdict(score), indent=2) + "\n")


def _parts(agent: Playable, evaluation: Evaluation) -> dict[str, Evaluation]:
    """What each behavior's agents did; {} where all are of one behavior."""
    spec = agent.spec
    named = spec.behaviors if len(spec.behaviors) > 1 else ()
    return {behavior.name: evaluation.by(spec.agents_of(behavior.name)) for behavior in named}


def _print_json(agent: Playable, evaluation: Evaluation, score: AgentScore | None, place: Path | None) -> None:
    parts = {name: {"mean": part.mean, "std": part.std} for name, part in _parts(agent, evaluation).items()}
    print_json(
        {
            **({} if score is None else asdict(score)),
            **({"behaviors": parts} if parts and score is not None else {}),
            "objectives": [round(float(x), 4) for x in evaluation.objectives],
            agent.unit: evaluation.frames,
            "lost": evaluation.lost,
            "seconds": round(evaluation.seconds, 2),
            "video": None if place is None else str(place),
        }
    )


def _shown(agent: Playable) -> str:
    """The game as its options name it, where one of palus's factories makes it of somebody's environment."""
    if agent.source is None or agent.env_id not in ADAPTERS:
        return agent.env_id
    return str(agent.source.options.get("id") or ADAPTERS[agent.env_id](agent.source.options))


def _print(agent: Playable, evaluation: Evaluation, score: AgentScore | None, place: Path | None) -> None:
    name = f"[bold]{escape(_shown(agent))}[/]"
    rate = f"{evaluation.frames:,} {agent.unit} in {evaluation.seconds:.1f} s"
    if evaluation.lost:
        rate += f", {evaluation.lost} lost with their engines and played again"
    if score is None:
        stdout.print(f"{name}: no episode came to its end ({rate}); allow more with --max-num-frames.")
    else:
        stdout.print(
            f"{name}: [bold]{score.text}[/] over {score.episodes} episodes (mean - std {score.mean - score.std:.2f})"
        )
        for behavior, part in _parts(agent, evaluation).items():
            stdout.print(f"{behavior}: {part.mean:.2f} +/- {part.std:.2f} over {len(part.episodes)} episodes")
        stdout.print(
            f"Mean reward with shaping {score.mean_reward:.2f}; mean length {evaluation.mean_length:,.0f} "
            f"{agent.unit}; {rate}; the agent was trained for {score.steps:,} {agent.counted}."
        )
    if place is not None and place.exists():
        stdout.print(f"Video: {escape(str(place))}")
