"""What the commands that play matches share: players, games and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from palus.arena.models.players import Player, load_player
from palus.arena.referee.games import DEFAULT_GAME, GAMES, game_of, source_of
from palus.arena.referee.result import MatchResult
from palus.cli.output import stdout, typed
from palus.errors import CheckpointError, HubError, ModelError, StorageError
from palus.export.bundle import game_of_bundle


def local_folder(run: str, hub: str | None) -> Path:
    """The folder of a model; a published one is fetched into the folder of its name, unless that is there already.

    What would lie in a folder that is here, or where runs are, is no OWNER/NAME unless a hub is named.
    Raises CheckpointError for no such folder, HubError.
    """
    from palus.hub.publish import check_id, fetch
    from palus.hub.target import parse_target

    path = Path(run)
    if path.is_dir():
        return path
    if path.is_file():
        raise CheckpointError(f"{run}: a file; give the run's folder, results/RUN_ID, or let it play with palus match")
    here = hub is None and (path.parent.is_dir() or path.parent.name == "results")
    if run.count("/") != 1 or run.startswith((".", "/", "~")) or here:
        raise CheckpointError(f"{run}: no such folder; give results/RUN_ID, or OWNER/NAME of a published model")
    target = parse_target(hub)
    folder = Path(check_id(target, run)[1])
    if not folder.exists():
        try:
            fetch(run, target, folder)
        except HubError as error:
            raise HubError(f"{run}: no such folder here, so a hub was asked: {error}") from error
        stdout.print(f"{escape(run)} is in {escape(str(folder))}.")
    return folder


def refresh_onnx(folder: Path) -> None:
    """Bring each `<Behavior>.onnx` of a run up to date: the policy that `palus enjoy` measured last, else the newest.

    Writes nothing where all are, nor where there is no agent of palus. Raises CheckpointError, HubError, ModelError,
    StorageError.
    """
    if not (folder / "configuration.yaml").is_file() or not any(folder.glob("*/**/policy.npz")):
        return
    from palus.export.policy_file import find_policies
    from palus.files import write_bytes
    from palus.hub.score import read_score

    score = read_score(folder)
    for behavior, policy in find_policies(folder, "best" if score is not None and score.best else "latest").items():
        model = policy.model
        if model is None:  # an older palus wrote it, or its encoder is one of its own, which says why it has no file
            from palus.run.agents import model_of

            model = model_of(policy)
        place = folder / f"{behavior}.onnx"
        if not place.is_file() or place.read_bytes() != model:
            write_bytes(place, model)


def game_meant(game: str | None, *words: str) -> str:
    """The game to play: the one that was named, else what the first run among the players was trained for.

    Raises ModelError where no arena plays that.
    """
    for word in words if game is None else ():
        path = Path(word)
        folder = path if path.is_dir() else path.parent
        trained = game_of_run(folder) if path.exists() else None
        if trained is not None and trained in GAMES:
            return trained
        if trained is not None:
            raise ModelError(
                f"{word}: trained for {trained}, and what can be played here is {', '.join(GAMES)}; let it play with "
                f"palus enjoy {typed(folder)}"
            )
    return game or DEFAULT_GAME


def game_of_run(folder: Path) -> str | None:
    """The game that a run's folder tells of. Where that is one of its user's own, the one whose models it holds."""
    trained = game_of_bundle(folder)
    if trained is None or trained in GAMES:
        return trained
    from palus.config.run_file import BEHAVIORS_OF

    held = (game for game, own in BEHAVIORS_OF.items() if all((folder / f"{name}.onnx").is_file() for name in own))
    return next(held, trained)


def load(*words: str, game: str = DEFAULT_GAME) -> list[Player]:
    """The players that these words mean, agents of sampled games as they are now. Raises ModelError."""
    if game_of(game).filmed:
        for word in words:
            refresh_onnx(Path(word))
    spec = source_of(game).spec
    return [load_player(word, spec) for word in words]


def append_log(path: Path, results: Sequence[MatchResult]) -> None:
    """Add one line per match to a match log. Raises StorageError."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{result.to_json()}\n" for result in results)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror}); choose another place for --log") from error
