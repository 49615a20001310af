"""`palus push`: check a model, record a replay, and publish the run on a hub or in a folder."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus.cli.output import progress_bar, stderr, stdout
from palus.errors import HubError, ModelError
from palus.processes import FORKLESS, can_fork, require_fork
from palus.terminal import Terminal

if TYPE_CHECKING:
    from palus.hub.layout import LocalRun
    from palus.hub.publish import Published
    from palus.hub.score import Rating
    from palus.hub.target import Target

EPILOG = """
Hubs: huggingface.co (the default), an arena as http://host:port, or a plain folder as folder:PATH. HF_ENDPOINT changes
the default. `palus login HUB` stores your token once.

Examples:

  # would an arena accept it?
  palus push results/mine --check

  # to huggingface.co
  palus push results/mine ada/striker

  palus push results/mine ada/striker --hub http://192.168.1.20:8000

  # score and video on the card
  palus enjoy results/doom --max-num-episodes 100
  palus push results/doom ada/doom

  # no server at all
  palus push stranger.onnx ada/stranger --hub folder:pool

  palus rank results/mine --json > board.json
  palus push results/mine ada/striker --rating board.json
"""

PATIENCE = 10.0
"""Times the processor time that an arena allows: this machine may be slow and busy, and the arena measures again."""

REPLAY_PAIRS, REPLAY_WINS = 5, 2


def push(
    run: Annotated[Path, typer.Argument(help="A run's folder, a bundle, or an .onnx file.", metavar="RUN_OR_BUNDLE")],
    repo_id: Annotated[str | None, typer.Argument(help="The repository.", metavar="OWNER/NAME")] = None,
    hub: Annotated[str | None, typer.Option(help="huggingface.co, http://host:port, or folder:PATH.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the model; upload nothing.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Upload a model that an arena would refuse.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Make the repository private.")] = False,
    message: Annotated[str, typer.Option(help="The commit's message.")] = "Push to Hub",
    rating: Annotated[Path | None, typer.Option(help="Leaderboard of `palus rank --json` for the card.")] = None,
    replay: Annotated[bool, typer.Option("--replay/--no-replay", help="Record a few wins for the page.")] = True,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Also the opponents of self-play: others can then --resume the run.")
    ] = False,
    new_card: Annotated[bool, typer.Option("--new-card", help="Replace a README.md that you wrote.")] = False,
) -> None:
    """Publish a model: laid out as ML-Agents does it, with a card, its training curve and a replay."""
    from palus.arena.referee.games import GAMES
    from palus.cli.players import refresh_onnx
    from palus.hub.layout import read_run
    from palus.hub.publish import check_id, publish
    from palus.hub.target import HubTarget, parse_target

    refresh_onnx(run)
    contents = read_run(run, snapshots=snapshots)
    if repo_id is None and not check:
        raise HubError("no repository is named; write: palus push RUN OWNER/NAME, or --check to only check the model")
    target = parse_target(hub)
    if repo_id is not None:
        check_id(target, repo_id)
        name = None if check else sign_in(target, repo_id)
        if name is not None and isinstance(target, HubTarget):
            stdout.print(f"Signed in to {target.url} as {escape(name)}.")
    if contents.game not in GAMES:
        stdout.print(f"{escape(contents.game)} is no game of an arena: no rules of one are checked.")
    elif not no_check and (check or not contents.is_agent):  # an agent is measured by its own score
        _check(contents, needed=check)
    _tell_unity(contents)
    if check or repo_id is None:
        return
    standing = None if rating is None else _rating(rating, contents)
    drawn = contents.game in GAMES and GAMES[contents.game].is_drawn
    made = _replay(contents, repo_id) if replay and drawn else {}
    with progress_bar(f"Uploading {len(contents.files) + len(made)} files", None):  # no share: a commit is one request
        published = publish(
            contents, repo_id, target, message=message, private=private, new_card=new_card, rating=standing, made=made
        )
    _report(published, repo_id, target)


def _check(run: LocalRun, *, needed: bool) -> None:
    """Exit with 1 when an arena would refuse the model, saying why and what to do.

    needed: raise ConfigError where this system cannot know. Else that is said: an arena checks the model itself.
    """
    from palus.arena.locked.vet import vet
    from palus.arena.models.entity import Entity

    if needed:
        require_fork("--check")
    elif not can_fork():
        stdout.print(f"Whether an arena accepts it is not checked, which {FORKLESS}.")
        return
    models = {behavior: path.read_bytes() for behavior, path in sorted(run.models.items())}
    files = tuple((behavior, hashlib.sha256(model).hexdigest()) for behavior, model in models.items())
    entity = Entity(run.sha256, run.name, files=files, models=tuple(models.values()))
    vetting = vet(entity, run.game, patience=PATIENCE)
    if vetting.refusal is None:
        stdout.print(f"{escape(str(run.player))}: an arena accepts it for {escape(run.game)}.")
        return
    refusal = vetting.refusal
    stderr.print(f"[bold red]{escape(refusal.code)}[/]: {escape(refusal.sentence)}")
    stderr.print(f"What to do: {escape(refusal.remedy)}")
    stderr.print(f"{escape(str(run.player))} would be refused; nothing was uploaded. --no-check uploads it anyway.")
    raise typer.Exit(1)


def _tell_unity(run: LocalRun) -> None:
    """What the card says too: whether Unity can load each model."""
    from palus.hub.model_card import gaps_of

    for model in run.models.values():
        gaps = gaps_of(model)
        told = f"Unity cannot load it: {'; '.join(gaps)}." if gaps else "Unity can load it."
        stdout.print(f"{escape(str(model))}: {escape(told)}")


def sign_in(target: Target, repo_id: str) -> str | None:
    """Find out before the work whether we may push there: package, token, rights. Raises HubError.

    Returns the account's name; None for a folder, which asks for none.
    """
    from palus.cli.login import hub_client
    from palus.hub.target import HubTarget

    return str(hub_client().check_may_push(target.url, repo_id)) if isinstance(target, HubTarget) else None


def _rating(path: Path, run: LocalRun) -> Rating | None:
    from palus.hub.score import find_rating

    try:
        board = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise HubError(
            f"{path}: no leaderboard ({error}); write one with: palus rank FOLDER --json > {shlex.quote(str(path))}"
        ) from error
    found = find_rating(board, run.sha256)
    if found is None:
        stdout.print(f"[yellow]{escape(str(path))} does not rank this model; the card goes without a rating.[/]")
    return found


def _replay(run: LocalRun, repo_id: str) -> dict[str, bytes]:
    """replay.match and replay.html: its best wins against the house bots, else a match; {} when it cannot play."""
    from palus.arena.models.players import load_player
    from palus.arena.referee.games import playable_game, source_of
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.recorder import Recorder
    from palus.arena.referee.replay import encode_replay
    from palus.arena.study.highlights import record_wins
    from palus.cli.players import load
    from palus.hub.publish import REPLAY, REPLAY_PAGE
    from palus.web.page import page_html

    with Terminal(stderr=True).status("Recording a replay"):
        try:
            player = load_player(str(run.player), source_of(run.game).spec, repo_id)
        except ModelError as error:
            stdout.print(f"[yellow]No replay: {escape(str(error))}[/]")
            return {}
        game = playable_game(run.game)
        opponents = load(*(game.bots[::-1] or game.house), game=game.env)
        recordings = record_wins(player, opponents, REPLAY_PAIRS, 0, REPLAY_WINS, game.env)
        if not recordings:
            recorder = Recorder([0])
            play_pairs(player, opponents[0], 1, seed=0, env_id=game.env, recorder=recorder)
            recordings = [recorder.recordings[0]]
        data = encode_replay(recordings, title=repo_id)
    return {REPLAY: data, REPLAY_PAGE: page_html(data, repo_id).encode()}


def _report(published: Published, repo_id: str, target: Target) -> None:
    if published.kept_card is not None:
        stdout.print(
            f"README.md: kept {published.kept_card} own text, with the tags completed; --new-card replaces it."
        )
    if published.stale_probe:
        stdout.print("[yellow]probe.json is about another model than this one and stays here; probe it anew.[/]")
    size = f"{published.files} files, {published.bytes / 1e6:.1f} MB, revision {published.revision[:10]}"
    outcome = "Published" if published.changed else "Nothing changed since the last push:"
    stdout.print(f"{outcome} {escape(published.place)} ({size}).")
    stdout.print(f"Anyone can fetch it: palus pull {repo_id}{escape(target.option_here)}")
