"""The members of a run's league (`palus.league.members`): who the names and files of the run file are. Loads no torch.

A name is looked up in the table of the game's scripted players. A file is data: ONNX is checked before it runs, and a
`.npz` of palus whose network needs code of one's own is refused unless that is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from palus.arena.models.players import Bot, ModelPlayer, Team, load_player
from palus.arena.models.policies import OnnxPlayer
from palus.errors import CheckpointError, ModelError
from palus.export.policy_file import PolicyFile, read_policy
from palus.types import BehaviorSpec, GameSpec


@dataclass(frozen=True)
class Guest:
    """A member of one behavior; who plays several is one for each. name: as the run file has it. player: a model, a
    policy of palus with its weights, or a script that reads the game."""

    name: str
    behavior: str
    player: ModelPlayer | PolicyFile | Bot


def find_guests(names: Sequence[str], spec: GameSpec) -> list[Guest]:
    """Everybody whom a run file names, for each behavior that they can play.

    Raises ModelError for a name that is neither a player of the house nor a file that fits the game.
    """
    return [Guest(name, behavior, player) for name in names for behavior, player in _of(name, spec)]


def _of(name: str, spec: GameSpec) -> Iterator[tuple[str, ModelPlayer | PolicyFile | Bot]]:
    """Behavior -> player, of one name."""
    path = Path(name)
    if path.suffix == ".npz" and path.is_file():
        yield from _of_policy(path, spec)
    elif path.suffix == ".onnx" and path.is_file() and len(spec.behaviors) > 1:
        yield from _of_model(path, spec)
    else:
        player = load_player(name, spec)
        for behavior in spec.behaviors:
            own = player.members[behavior.name] if isinstance(player, Team) else player
            yield behavior.name, own


def _of_policy(path: Path, spec: GameSpec) -> Iterator[tuple[str, PolicyFile]]:
    try:
        file = read_policy(path)
    except CheckpointError as error:
        raise ModelError(str(error)) from error
    fits = [
        b.name for b in spec.behaviors if (b.observations, b.actions) == (file.spec.observations, file.spec.actions)
    ]
    if not fits:
        raise ModelError(f"{path}: was trained on other observations or actions than {spec.env_id} has; remove it")
    yield from ((name, file) for name in ([file.behavior] if file.behavior in fits else fits))


def _of_model(path: Path, spec: GameSpec) -> Iterator[tuple[str, ModelPlayer]]:
    """The behavior after which the file is called, else all that it fits."""
    called: list[BehaviorSpec] = [b for b in spec.behaviors if b.name == path.stem]
    refusals, found = [], 0
    for behavior in called or spec.behaviors:
        try:
            player = OnnxPlayer(path, behavior)
        except ModelError as error:
            refusals.append(f"{behavior.name}: {error}")
            continue
        found += 1
        yield behavior.name, player
    if not found:
        raise ModelError(f"{path}: fits no behavior of {spec.env_id}. {' '.join(refusals)}")
