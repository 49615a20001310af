"""What the commands that play matches do with players and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palus import envs
from palus.arena.models.players import Player, load_player
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import write_replay
from palus.arena.referee.result import MatchResult
from palus.errors import StorageError
from palus.types import GameSpec


def refresh_onnx(folder: Path) -> None:
    """Bring each `<Behavior>.onnx` of a run up to date: the policy that `palus enjoy` measured last, else the newest.

    Does nothing where there is no agent of palus. Raises CheckpointError, HubError, ModelError, StorageError.
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
        write_bytes(folder / f"{behavior}.onnx", model)


def soccer_twos() -> GameSpec:
    """The game that all commands play."""
    return envs.make("SoccerTwos", 1).spec


def load(*specs: str) -> list[Player]:
    """The players that these words mean. Raises ModelError."""
    spec = soccer_twos()
    return [load_player(word, spec) for word in specs]


def append_log(path: Path, results: Sequence[MatchResult]) -> None:
    """Add one line per match to a match log. Raises StorageError."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{result.to_json()}\n" for result in results)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror}); choose another place for --log") from error


def save_replay(path: Path, recorder: Recorder, title: str) -> None:
    """Write the recorded matches in the order in which they were numbered. Raises StorageError."""
    write_replay(path, [recorder.recordings[number] for number in sorted(recorder.recordings)], title=title)
