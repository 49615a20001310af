"""A match of what a run has learned up to now: its newest policies against themselves, a past self or a house bot.

What is asked for is looked up among the files that were found in the run's folder: no name becomes a path.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palus.arena.models.players import Player, built_in, team_of
from palus.arena.models.policies import OnnxPlayer, played_behaviors
from palus.arena.referee.games import GAMES, source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import encode_replay
from palus.envs import GameSource
from palus.errors import ModelError
from palus.web.shapes import Shape
from palus.web.watch.league import snapshot_files, snapshot_names, trained_steps

ITSELF = "itself"


class Opponent(Shape):
    """Somebody whom the newest policy can be watched against. word: what is asked for."""

    word: str
    label: str


@dataclass(frozen=True)
class Stage:
    """Where matches of a run can be played. folder: of the run; game: its name; options: of the game's factory."""

    folder: Path
    game: str | None
    options: Mapping[str, Any]

    @property
    def refusal(self) -> str | None:
        """Why there is nothing to watch here, None where there is."""
        game = GAMES.get(self.game or "")
        if game is None or game.layout is None:
            shown = f"palus enjoy {shlex.quote(str(self.folder))}"
            return f"Matches of {self.game or 'this game'} cannot be drawn here; see: {shown}"
        if not game.can_be_played_here:
            return f"{self.game} is not installed on this machine; {game.install}"
        if not any(self._files().values()):
            return "The run has written no policy yet; wait for its first snapshot or checkpoint."
        return None

    def opponents(self) -> list[Opponent]:
        """All whom the newest policy can be watched against, the newest past self first; [] where nothing is played."""
        if self.refusal is not None or self.game is None:
            return []
        numbers = sorted({number for _, number in snapshot_files(self.folder)}, reverse=True)
        names = snapshot_names(self.folder)
        return [
            Opponent(word=ITSELF, label="itself"),
            *(Opponent(word=f"snapshot-{n}", label=names.get(n, f"snapshot #{n}")) for n in numbers),
            *(Opponent(word=name, label=name) for name in GAMES[self.game].house),
        ]

    def play(self, against: str) -> bytes:
        """A mirrored pair as the bytes of a replay. against: an `Opponent.word`.

        Raises ModelError when there is no such opponent, or nothing to play with.
        """
        words = {opponent.word for opponent in self.opponents()}
        if against not in words or self.game is None:
            raise ModelError(
                f"{against!r:.80} cannot be watched here; {self.refusal or 'choose one of those that are listed'}"
            )
        source = source_of(self.game, self.options)
        files = self._files()
        newest = self._player(source, {name: own[-1] for name, own in files.items() if own}, "newest")
        if against == ITSELF:
            rival: Player = newest
        elif against in GAMES[self.game].house:
            rival = built_in(against, source.spec)
        else:
            rival = self._player(source, self._past(int(against.removeprefix("snapshot-"))), against)
        recorder = Recorder()
        legs = (1,) if rival is newest else (1, 2)
        seed = secrets.randbelow(2**31)
        play_pairs(newest, rival, 1, seed, env_id=self.game, env_options=self.options, legs=legs, recorder=recorder)
        recordings = [recorder.recordings[number] for number in sorted(recorder.recordings)]
        return encode_replay(recordings, title=f"{self.folder.name}: {newest.name} - {rival.name}")

    def _files(self) -> dict[str, list[Path]]:
        """Behavior -> its policies on disk, the most trained last; of several learners the best one alone."""
        found: dict[str, list[tuple[int, Path]]] = {}
        best = [*self.folder.glob("*/policy.npz")]
        one = {path.parent.name for path in best if any(path.parent.glob("policy_*"))}
        others = [*snapshot_files(self.folder).values(), *self.folder.glob("*/policy_*/policy.npz")]
        for path in [*(path for path in others if path.relative_to(self.folder).parts[0] not in one), *best]:
            if (steps := trained_steps(path)) is not None:
                found.setdefault(path.relative_to(self.folder).parts[0], []).append((steps, path))
        return {name: [path for _, path in sorted(own, key=lambda one: one[0])] for name, own in found.items()}

    def _past(self, number: int) -> dict[str, Path]:
        """Every behavior as it was when a snapshot was taken: its last one up to that, or its first."""
        past: dict[str, Path] = {}
        for (behavior, own), path in snapshot_files(self.folder).items():
            if own <= number or behavior not in past:
                past[behavior] = path
        return past

    def _player(self, source: GameSource, files: Mapping[str, Path], name: str) -> Player:
        """Of a file for each behavior; where the game's only one has no name, the run gave it one."""
        members = {}
        for own, played in zip(source.spec.behaviors, played_behaviors(source.spec), strict=True):
            path = files.get(own.name) if own.name or len(files) != 1 else next(iter(files.values()))
            if path is None:
                raise ModelError(
                    f"{self.folder}: no policy of {own.name or self.game} in it yet; wait for a checkpoint"
                )
            members[played.name] = OnnxPlayer(path, played, f"{name} ({trained_steps(path) or 0:,} steps)")
        first = next(iter(members.values()))
        return team_of(members, first.name, first.sha256)
