"""Who can enter a match, and how a name or a path becomes a player.

A `ModelPlayer` answers observations with action probabilities, a `Team` has one for each behavior of its game, a `Bot`
reads the state of the game. Whatever the kind, a player is stateless between calls, so that one object may play many
matches at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from palus import envs
from palus.arena.models.policies import Observations, OnnxPlayer, RandomPlayer, played_behaviors
from palus.envs.arena_game import BotAct
from palus.errors import ModelError
from palus.export.bundle import game_of_bundle
from palus.files import digest_of
from palus.types import F32, I64, Bool, GameSpec


class ModelPlayer(Protocol):
    """A player that sees what an agent sees.

    sha256: of its file; None when it has none.   state_size: numbers that it remembers of an agent, 0 without memory.
    """

    name: str
    sha256: str | None
    state_size: int

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """Probabilities [rows, sum(branches)], each branch a distribution, and new states [rows, S].

        observations: name -> [rows, *shape].   states: [rows, S], zeros when a match begins.   masks: [rows,
        sum(branches)], True where a choice is allowed; None where every one is. Each row is independent of the others.
        """


class MatchwisePlayer(ModelPlayer, Protocol):
    """One that is asked match by match, so that what it is asked in one does not depend on the others beside it."""

    def answer_matches(
        self, observations: Observations, states: F32, masks: Bool | None, matches: I64
    ) -> tuple[F32, F32]:
        """As `answer`, at the next decision of these matches. matches: [rows] the number of each row's."""


@dataclass(frozen=True)
class Team:
    """A player of a game of several behaviors. members: who plays each."""

    name: str
    members: Mapping[str, ModelPlayer]
    sha256: str | None = None

    @property
    def state_size(self) -> int:
        """Of the member that remembers most."""
        return max(member.state_size for member in self.members.values())


@dataclass(frozen=True)
class Bot:
    """A scripted player of a built-in game."""

    name: str
    act: BotAct
    sha256: str | None = None


Player: TypeAlias = ModelPlayer | Team | Bot


def member_for(player: ModelPlayer | Team, behavior: str) -> ModelPlayer:
    """Who of it plays a behavior."""
    return player.members[behavior] if isinstance(player, Team) else player


def team_of(members: Mapping[str, ModelPlayer], name: str, sha256: str | None) -> ModelPlayer | Team:
    """The only member, or all of them as a player of this name."""
    return Team(name, members, sha256) if len(members) > 1 else next(iter(members.values()))


def built_in(word: str, env_spec: GameSpec, name: str | None = None, sha256: str | None = None) -> Player:
    """A player of the house. word: one of the game's `ArenaGame.house`. name, sha256: what it is called in results."""
    name = name or word
    if word != "random":
        return Bot(name, envs.arena_games()[env_spec.env_id].bot(word), sha256)
    return team_of({b.name: RandomPlayer(b, name, sha256) for b in played_behaviors(env_spec)}, name, sha256)


def load_player(spec: str, env_spec: GameSpec, name: str | None = None) -> Player:
    """The player that a word on the command line means.

    spec: a built-in player, an `.onnx` file, a bundle folder with `<Behavior>.onnx` for each behavior of the game, or a
    league snapshot `.npz`.   name: how it is called in results; default the file's or folder's name.
    Raises ModelError when there is no such player or its file cannot be played.
    """
    behaviors = played_behaviors(env_spec)
    game = envs.arena_games().get(env_spec.env_id)
    house = game.house if game else ("random",)
    if spec in house:
        return built_in(spec, env_spec)
    path = Path(spec)
    if path.is_dir():
        name = name or path.resolve().name
        models = [_bundle_model(path, behavior.name, env_spec.env_id) for behavior in env_spec.behaviors]
        members = {own.name: OnnxPlayer(model, own, name) for model, own in zip(models, behaviors, strict=True)}
        return team_of(members, name, digest_of({own: member.sha256 or "" for own, member in members.items()}))
    if not path.exists():
        raise ModelError(f"{spec}: no such player; {_suggestion(path, house)}")
    if path.suffix in (".onnx", ".npz"):
        if len(behaviors) > 1:
            files = " and ".join(f"{behavior.name}.onnx" for behavior in behaviors)
            raise ModelError(f"{spec}: one model, and {env_spec.env_id} needs several; give the folder of {files}")
        return OnnxPlayer(path, behaviors[0], name)
    raise ModelError(
        f"{spec}: not a policy; give an .onnx file, a bundle folder, a snapshot (.npz) or {_choices(house)}"
    )


def find_players(folder: Path, env_spec: GameSpec) -> tuple[list[Player], list[str]]:
    """All players in a folder: its `.onnx` files and snapshots, bundles in its direct subfolders, a run's checkpoints.

    Returns players in the order of their names, the same file only once, and one sentence per file that cannot be
    played. Raises ModelError when the folder does not exist.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; give one that holds .onnx files, bundles or snapshots")
    own = env_spec.behaviors[0].name
    files = [p for p in sorted(folder.iterdir()) if p.suffix in (".onnx", ".npz")]
    files += sorted((folder / own).glob("*.onnx")) if own else []  # a run keeps its checkpoints there
    files = [p for p in files if p.is_file()]  # a folder may have such a name, and be a bundle
    if len(env_spec.behaviors) > 1:  # no file plays alone
        files = [folder] if (folder / f"{own}.onnx").is_file() else []
    # The model of a bundle is called like its folder: all of them have the same file name.
    candidates = {folder.resolve().name if p == folder or p.stem == own else p.stem: p for p in files}
    for bundle in sorted(folder.iterdir()):
        if any(p.is_file() for p in bundle.glob(f"{own or '*'}.onnx")):
            candidates[f"{bundle.name}/" if bundle.name in candidates else bundle.name] = bundle
    players: dict[str, Player] = {}
    rejected = []
    for name, path in candidates.items():
        try:
            player = load_player(str(path), env_spec, name)
        except ModelError as error:
            rejected.append(str(error))
            continue
        players.setdefault(player.sha256 or name, player)
    return list(players.values()), rejected


def _bundle_model(folder: Path, own: str, game: str) -> Path:
    """`<Behavior>.onnx`, or the only file where any name fits. game: that is to be played."""
    models = sorted(p for p in folder.glob("*.onnx") if p.is_file())
    if own and folder / f"{own}.onnx" in models:
        return folder / f"{own}.onnx"
    if not own and len(models) == 1:
        return models[0]
    trained = game_of_bundle(folder)
    if trained not in (None, game):
        raise ModelError(f"{folder}: trained for {trained}, and {game} is played here; choose a model of {game}")
    inside = models or sorted(p for p in folder.iterdir() if p.suffix == ".npz" or any(p.glob("*.onnx")))
    found = (
        f"it holds {', '.join(p.name for p in inside[:5])}: name one of them" if inside else "it holds no .onnx file"
    )
    raise ModelError(f"{folder}: not a bundle, {own + '.onnx is missing' if own else 'expected one model'}; {found}")


def _suggestion(path: Path, house: tuple[str, ...]) -> str:
    """Near names beside the missing path, or what may be given at all."""
    beside = [str(path.parent / p.name) for p in path.parent.glob("*")] if path.parent.is_dir() else []
    playable = [p for p in beside if Path(p).suffix in (".onnx", ".npz") or any(Path(p).glob("*.onnx"))]
    near = difflib.get_close_matches(str(path), [*playable, *house], n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"give an .onnx file, a bundle folder, a snapshot (.npz) or {_choices(house)}"


def _choices(house: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(house[:-1]), house[-1])))
