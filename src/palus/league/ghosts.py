"""Self-play against ghosts: a window of past snapshots, one Elo number for each, and who faces whom.

Source: ML-Agents' ghost trainer, counted in its units: `save_steps` and `team_change` in trainer steps, `swap_steps` in
decisions of opponents. What differs (docs/differences.md): every match slot draws its own opponent and keeps it until
the match ends, team changes wait for the end of each match instead of resetting the environment, and snapshots,
ratings and counters survive a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palus.config import SelfPlay
from palus.league.snapshot import Snapshot, load_snapshot, save_snapshot, snapshot_path
from palus.ratings.elo import update
from palus.rollout.rollout import LATEST, Episode, Matchup
from palus.types import F32


class GhostLeague:
    """The pool of a symmetric game. `elo` is the current policy's rating, `ratings` those of the stored snapshots."""

    def __init__(self, settings: SelfPlay, behavior: str, teams: int, folder: Path, seed: int) -> None:
        self.settings, self.behavior, self.teams, self.folder = settings, behavior, teams, folder
        self.random = np.random.default_rng(seed)
        self.elo = settings.initial_elo
        self.ratings: dict[int, float] = {}
        self.window: list[int] = []
        self.learning_team = 0
        self.snapshot_count = 0
        self.last_save = self.last_team_change = self.ghost_steps = 0
        self._slots: dict[int, tuple[int, int]] = {}  # match slot -> (opponent, ghost step of the draw)
        self._cache: dict[int, Snapshot] = {}

    @property
    def next_path(self) -> Path:
        """The file of the snapshot that comes next."""
        return snapshot_path(self.folder, self.snapshot_count)

    def draw(self, slot: int) -> Matchup:
        """The next match of a slot: the latest policy with probability `play_against_latest_model_ratio`, else a
        uniformly drawn snapshot of the window. A draw stays with its slot for at least `swap_steps` ghost steps."""
        opponent, drawn_at = self._slots.get(slot, (LATEST, -1))
        if drawn_at < 0 or self.ghost_steps - drawn_at > self.settings.swap_steps:
            latest = self.random.random() < self.settings.play_against_latest_model_ratio
            opponent = LATEST if latest or not self.window else int(self.random.choice(self.window))
            self._slots[slot] = (opponent, self.ghost_steps)
        return Matchup(self.learning_team, opponent)

    def arrays(self, snapshot_id: int) -> Mapping[str, F32]:
        """Weights of a snapshot, from memory or from disk."""
        if snapshot_id not in self._cache:
            self._cache[snapshot_id] = load_snapshot(snapshot_path(self.folder, snapshot_id))
        return self._cache[snapshot_id].arrays

    def rate(self, episode: Episode) -> None:
        """Elo after one learning agent's episode: K = 1, zero-sum between the current policy and its opponent.

        Matches cut off by the time limit are not rated, and a match against the latest policy changes nothing: both as
        in ML-Agents. A rated goal counts once for each learning agent.
        """
        if episode.result is None or episode.opponent == LATEST:
            return
        score = {1: 1.0, 0: 0.5, -1: 0.0}[episode.result]
        opponent = self.ratings.get(episode.opponent, self.settings.initial_elo)
        self.elo, self.ratings[episode.opponent] = update(self.elo, opponent, score)

    def advance(self, step: int, ghost_steps: int, arrays: Mapping[str, F32]) -> Snapshot | None:
        """After an update: count, save a snapshot when due, change the learning team when due.

        step: trainer steps so far; ghost_steps: opponents' decisions since the last call. Returns a new snapshot.
        """
        self.ghost_steps += ghost_steps
        if step - self.last_team_change > self.settings.team_change:
            self.learning_team = (self.learning_team + 1) % self.teams
            self.last_team_change = step
        if self.window and step - self.last_save <= self.settings.save_steps:
            return None
        self.last_save = step
        snapshot = Snapshot(self.snapshot_count, self.snapshot_count - 1, self.behavior, step, arrays)
        save_snapshot(self.folder, snapshot)
        self.snapshot_count += 1
        self.window = [*self.window, snapshot.id][-self.settings.window :]
        self.ratings[snapshot.id] = self.elo
        self._cache[snapshot.id] = snapshot
        return snapshot

    def forget(self, in_play: set[int]) -> None:
        """Drop weights of snapshots that are neither in the window nor in a running match from memory."""
        needed = in_play | set(self.window)
        self._cache = {k: v for k, v in self._cache.items() if k in needed}
        self.ratings = {k: v for k, v in self.ratings.items() if k in needed}

    def prune(self, in_play: set[int]) -> None:
        """Delete snapshot files that the checkpoint just written does not need."""
        needed = in_play | set(self.window)
        for snapshot in range(self.snapshot_count):  # its own ones, whatever else lies there
            if snapshot not in needed:
                snapshot_path(self.folder, snapshot).unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the snapshot files."""
        return {
            "random": self.random.bit_generator.state,
            "slots": dict(self._slots),
            "ratings": dict(self.ratings),
            **{k: getattr(self, k) for k in _PLAIN},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. Raises CheckpointError when a snapshot of the window is gone."""
        self.random.bit_generator.state = state["random"]
        self._slots = {int(k): (int(v[0]), int(v[1])) for k, v in state["slots"].items()}
        self.ratings = {int(k): float(v) for k, v in state["ratings"].items()}
        for key in _PLAIN:
            setattr(self, key, state[key])
        for snapshot_id in self.window:
            self.arrays(snapshot_id)


_PLAIN = ("elo", "window", "learning_team", "snapshot_count", "last_save", "last_team_change", "ghost_steps")
