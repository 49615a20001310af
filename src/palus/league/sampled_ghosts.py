"""Self-play in sampled games: in some games one side learns against a snapshot of the past, in others all sides learn.

The words are those of ML-Agents' ghost trainer (`palus.league.ghosts` is the league of batched games). Opponents are
drawn at every start of a game, so `swap_steps` and `team_change` have nothing to do here. `elo` is the same number as
there: K = 1, zero-sum between the present policy and its snapshot, once for each learning agent of a match. Who won is
told by the true objective, compared with every agent of other sides; time limits end many such games, and count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palus.config.trainer import SelfPlay
from palus.errors import ConfigError
from palus.league.snapshot import Snapshot, load_snapshot, save_snapshot, snapshot_path
from palus.nn.counter import uniform
from palus.ratings.elo import update
from palus.rollout.trajectories import FROZEN, EpisodeEnd
from palus.types import AnyArray, GameSpec

LEARNER = 0


class SampledGhosts:
    """A window of snapshots, and who plays each side of a game: a `palus.league.casting.Casting` with a past.

    elo: the present policy's rating; ratings: those of snapshots, by the sampler's id.
    Raises ConfigError for a game with one side.
    """

    def __init__(self, settings: SelfPlay, behavior: str, spec: GameSpec, folder: Path, seed: int) -> None:
        self.settings, self.behavior, self.folder, self.seed = settings, behavior, folder, seed
        self.teams = spec.teams or tuple(range(spec.num_agents))
        self.sides = sorted(set(self.teams))
        if len(self.sides) < 2:
            raise ConfigError(f"self_play: {spec.env_id} has one side only; remove self_play, or train in another game")
        self.window: tuple[int, ...] = ()
        self.count = self.last_save = 0
        self.elo = settings.initial_elo
        self.ratings: dict[int, float] = {}
        self.restart(0)

    @property
    def next_path(self) -> Path:
        """The file of the snapshot that comes next."""
        return snapshot_path(self.folder, self.count)

    def restart(self, counter: int) -> None:
        """All games start anew, for the `counter`-th time: another series of draws."""
        self._counter = counter
        self._starts: dict[int, int] = {}
        self._matches: dict[int, dict[int, EpisodeEnd]] = {}  # game -> agent -> its end, of matches not over yet

    def __call__(self, game: int) -> list[int]:
        """Policy ids of the agents of a game that starts now. May be asked by the sampler's thread."""
        start = self._starts[game] = self._starts.get(game, 0) + 1
        tick, window = (self._counter << 32) | start, self.window
        latest, side, past = (uniform(self.seed, tick, game, column) for column in range(3))
        if not window or latest < self.settings.play_against_latest_model_ratio:
            return [LEARNER] * len(self.teams)
        learning, opponent = self.sides[int(side * len(self.sides))], window[int(past * len(window))]
        return [LEARNER if team == learning else self.policy_id(opponent) for team in self.teams]

    def rate(self, ends: Sequence[EpisodeEnd]) -> None:
        """Take in episodes that ended, of all policies; a match is rated when all its agents' are there."""
        for end in ends:
            known = self._matches.get(end.game, {})
            # Of a match that was lost with its worker some ends are missing for ever.
            match = {agent: e for agent, e in known.items() if e.start == end.start} | {end.agent: end}
            self._matches[end.game] = match
            if len(match) == len(self.teams):
                self._rate_match(self._matches.pop(end.game))

    def _rate_match(self, match: Mapping[int, EpisodeEnd]) -> None:
        opponent = max(end.policy for end in match.values())
        if opponent < FROZEN:
            return  # against itself
        for agent, end in match.items():
            if end.policy == LEARNER:
                others = [e for a, e in match.items() if self.teams[a] != self.teams[agent]]
                score = sum(_points(end.true_objective - e.true_objective) for e in others) / len(others)
                rating = self.ratings.get(opponent, self.settings.initial_elo)
                self.elo, self.ratings[opponent] = update(self.elo, rating, score)

    def policy_id(self, snapshot: int) -> int:
        """The sampler's id of a snapshot. Ids come round again, long after the last game of their former holder."""
        return FROZEN + snapshot % (2 * self.settings.window)

    def is_due(self, step: int) -> bool:
        """Whether the present policy is to become a snapshot."""
        return not self.count or step - self.last_save >= self.settings.save_steps

    def save(self, step: int, arrays: Mapping[str, AnyArray]) -> int:
        """Write a snapshot; returns its number. It is drawn once `admit` is called. Raises StorageError."""
        snapshot = Snapshot(self.count, self.count - 1, self.behavior, step, arrays)
        save_snapshot(self.folder, snapshot)
        self.count, self.last_save = self.count + 1, step
        return snapshot.id

    def admit(self, snapshot: int) -> None:
        """Let games draw a snapshot, which the sampler has by now."""
        self.ratings[self.policy_id(snapshot)] = self.elo
        self.window = (*self.window, snapshot)[-self.settings.window :]

    def arrays(self, snapshot: int) -> Mapping[str, AnyArray]:
        """Weights of a snapshot. Raises CheckpointError when its file is gone."""
        return load_snapshot(snapshot_path(self.folder, snapshot)).arrays

    def prune(self) -> None:
        """Delete snapshot files that the checkpoint just written does not need."""
        for snapshot in range(self.count):  # its own ones, whatever else lies there
            if snapshot not in self.window:
                snapshot_path(self.folder, snapshot).unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the snapshot files."""
        plain = {"window": list(self.window), "count": self.count, "last_save": self.last_save}
        return {**plain, "elo": self.elo, "ratings": dict(self.ratings)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.window = tuple(state["window"])
        self.count, self.last_save = int(state["count"]), int(state["last_save"])
        self.elo, self.ratings = float(state["elo"]), dict(state["ratings"])


def _points(lead: float) -> float:
    return 0.5 if lead == 0 else float(lead > 0)
