"""Matches of games that step alone: two players, a number of mirrored pairs in, match results out, as
`palus.arena.referee.match` does it. The game says who won; where its matches do not repeat, they are filmed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, ModelPlayer, Player, Team
from palus.arena.referee import sampling
from palus.arena.referee.games import game_of, playable_game
from palus.arena.referee.result import Cause, MatchResult, Mode, Side, Verdict, match_ids, verdict_of
from palus.envs import make_game
from palus.envs.game import Game
from palus.envs.protocol import room_for
from palus.errors import EnvError, ModelError
from palus.types import F32, MASKS, AnyArray, Bool

logger = logging.getLogger(__name__)

TEAMS = 2

Recorder = Callable[[AnyArray], None]


def make_single(env: str, params: Mapping[str, Any] | None = None) -> Game:
    """One instance of a game, by an arena's rules. params: in their place. Raises EnvError when it is not installed."""
    return make_game(env, **{**playable_game(env).options, **(params or {})})


def play_duels(
    a: Player,
    b: Player,
    pairs: int,
    seed: int,
    *,
    make: Callable[[], Game],
    mode: Mode = "stochastic",
    recorder: Recorder | None = None,
    progress: Callable[[int], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> tuple[MatchResult, ...]:
    """Play `pairs` mirrored pairs; two results each: A hosts and is first (leg 1), then B (leg 2).

    make: as for `play_duel`. recorder: gets the pictures of all matches, every tic's where the game has a `recorder`.
    progress: called with 1 after each match. stopped: asked before every pair; once it says so, no more are played.
    Raises ModelError for a bot: it reads the state of a game that is stepped in batches.
    """
    if isinstance(a, Bot | Team) or isinstance(b, Bot | Team):
        raise ModelError("bots and teams cannot play here; give models or random")
    results = []
    game = make()
    if recorder is not None and hasattr(game, "recorder"):
        game.recorder = recorder
    try:
        for match_seed in sampling.pair_seeds(seed, pairs).tolist():
            if stopped is not None and stopped():
                break
            for leg, players in ((1, (a, b)), (2, (b, a))):
                results.append(play_duel(game, players, match_seed, leg, mode=mode))
                if progress is not None:
                    progress(1)
    finally:
        game.close()
    return tuple(results)


def play_duel(
    game: Game,
    players: tuple[ModelPlayer, ModelPlayer],
    seed: int,
    leg: int,
    *,
    mode: Mode = "stochastic",
    watch: Recorder | None = None,
) -> MatchResult:
    """Play one match; void when the engine fails, and the game may be used again then.

    game: of two agents whose episodes end for both at once. players: the host first.
    seed: of the match. watch: gets a picture at the start and after every decision.
    """
    return _Match(game, players, seed, leg, mode, watch).play()


@dataclass
class _Match:
    """One match: agent 0 of the game belongs to the first player, agent 1 to the second."""

    game: Game
    players: tuple[ModelPlayer, ModelPlayer]
    seed: int
    leg: int
    mode: Mode
    watch: Recorder | None
    entropies: list[list[float]] = field(default_factory=lambda: [[], []])
    healthy: list[bool] = field(default_factory=lambda: [True, True])

    def play(self) -> MatchResult:
        """Until the time is up, a player answers no probabilities, or the engine fails."""
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
        points: tuple[float, ...] = (0.5, 0.5)
        score, decisions, failed = (0, 0), 0, False
        try:
            points, score, decisions = self._play()
        except EnvError as error:
            logger.warning("%s", error)
            failed = True
        verdict, cause = _verdict(points, self.healthy, failed)
        sides = (self._side(0), self._side(1))
        env_id = self.game.spec.env_id
        own_id, unit_id = match_ids(env_id, self.seed, self.leg, sides)
        return MatchResult(
            id=own_id,
            unit_id=unit_id,
            env=env_id,
            seed=self.seed,
            leg=self.leg,
            sides=sides,
            result=verdict,
            cause=cause,
            score=score,
            duration_ticks=decisions * self.game.spec.frameskip,
            events=(),
            started=started,
            wall_ms=round(1e3 * (time.perf_counter() - clock), 1),
        )

    def _play(self) -> tuple[tuple[float, ...], tuple[int, int], int]:
        """The game's verdict, the score of both, and the decisions played."""
        game, spec = self.game, self.game.spec
        game.reset(self.seed)
        self._show()
        seen = room_for(spec.behaviors[0], TEAMS)
        states = [np.zeros((1, player.state_size), np.float32) for player in self.players]
        decision = 0
        while True:
            game.observe(seen)
            actions = np.zeros((TEAMS, spec.actions.columns), np.float32)
            for side, player in enumerate(self.players):
                rows = {name: np.ascontiguousarray(array[side : side + 1]) for name, array in seen.items()}
                masks = rows.pop(MASKS, None)
                answer, states[side] = player.answer(rows, states[side], masks)
                actions[side] = self._choose(answer, masks, side, decision)
            if not all(self.healthy):
                return (0.5, 0.5), (0, 0), decision
            step = game.step(actions)
            decision += 1
            self._show()
            if step.over:
                if len(step.points) != TEAMS:
                    raise EnvError(f"{spec.env_id} does not say who wins a match of two")
                return step.points, game_of(spec.env_id).score(step.points, step.stats), decision

    def _show(self) -> None:
        if self.watch is not None:
            self.watch(self.game.render())

    def _choose(self, answer: F32, masks: Bool | None, side: int, decision: int) -> AnyArray:
        sizes = self.game.spec.actions.branches
        if not sampling.is_distribution(answer, sizes, masks).all():
            self.healthy[side] = False
            return np.zeros(len(sizes))
        self.entropies[side].append(float(sampling.entropy(answer)[0]))
        if self.mode == "greedy":
            return sampling.best(answer, sizes).ravel()
        uniform = sampling.uniforms(np.array([self.seed]), decision, np.array([side]), len(sizes))
        return sampling.draw(answer, uniform, sizes).ravel()

    def _side(self, side: int) -> Side:
        player, noted = self.players[side], self.entropies[side]
        return Side(Entity(player.sha256 or "", player.name), self.mode, float(np.mean(noted)) if noted else None)


def _verdict(points: tuple[float, ...], healthy: list[bool], failed: bool) -> tuple[Verdict, Cause]:
    """points: the game's. failed: the engine did. healthy: whether each side answered probabilities."""
    if failed:
        return "void", "engine"
    if not any(healthy):
        return "void", "non_finite"
    if not all(healthy):
        return ("forfeit2" if healthy[0] else "forfeit1"), "non_finite"
    return verdict_of(points), "time_limit"
