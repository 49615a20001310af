"""The referee: two players, a seed and a number of mirrored pairs in, match results out.

A mirrored pair is the same match seed played twice with the sides swapped. All matches of a call are stepped side by
side in one environment, but a result depends only on the players, the seed and the pair's number: the environment's
slots are independent, the players' rows too, and actions are drawn from counters (`palus.arena.referee.sampling`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np

from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, Player
from palus.arena.referee import sampling
from palus.arena.referee.games import DEFAULT_GAME, game_of, source_of
from palus.arena.referee.questions import Question, ask, by_behavior, memory_of, questions_for, widths
from palus.arena.referee.recorder import Observer
from palus.arena.referee.result import Cause, MatchResult, Mode, Side, Verdict, match_ids, verdict_events, verdict_of
from palus.envs import GameSource
from palus.envs.arena_game import ArenaGame
from palus.errors import EnvError
from palus.threads import after
from palus.types import F32, I32, I64, Bool

logger = logging.getLogger(__name__)

TEAMS = 2
PATIENCE_S, PATIENCE = 300.0, 10.0
"""Matches may take so long, and so many times their own length, before their engine counts as lost."""


def play_pairs(
    a: Player,
    b: Player,
    pairs: int,
    seed: int,
    *,
    mode: Mode = "stochastic",
    env_id: str = DEFAULT_GAME,
    env_options: Mapping[str, object] | None = None,
    legs: Sequence[int] = (1, 2),
    num_parallel: int | None = None,
    recorder: Observer | None = None,
    progress: Callable[[int], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> tuple[MatchResult, ...]:
    """Play `pairs` mirrored pairs; two results each, in order: A blue (leg 1), then A purple (leg 2).

    mode: "stochastic" draws from the players' probabilities, "greedy" takes the most probable choice.
    env_options: of the game's factory, over those of its arena's matches; not part of the results' ids.
    legs: which games of every pair to play; (1,) for a player against itself, where the second repeats the first.
    num_parallel: matches stepped at the same time; speed and memory, never results. By default as the game declares.
    recorder: keeps what it takes to draw chosen matches, or films them. progress: called with the number of matches
    just finished. stopped: asked before every decision; once it says so, only the pairs that are over come back.
    Those are the short ones of what was played, so their score leans to quick goals.
    """
    seeds = sampling.pair_seeds(seed, pairs)
    results: list[MatchResult | None] = []
    game, source = game_of(env_id), source_of(env_id, env_options)
    terms = _Terms((a, b), seeds, mode, game, source, recorder, progress, stopped)
    num_parallel = num_parallel or game.side_by_side
    numbers = [(pair, leg) for pair in range(pairs) for leg in legs]
    env: Any = None
    try:
        for first in range(0, len(numbers), num_parallel):
            if terms.is_stopped:
                break
            wave = numbers[first : first + num_parallel]
            if env is None or env.num_matches != len(wave):
                env = terms.change_env(env, len(wave))
            results += (playing := _Wave(terms, wave, env)).play()
            env = playing.env
    finally:
        if env is not None:
            env.close()
    size = len(legs)
    whole = [unit for k in range(0, len(results), size) if None not in (unit := results[k : k + size])]
    return tuple(result for unit in whole if len(unit) == size for result in unit if result is not None)


@dataclass(frozen=True)
class _Terms:
    """What all waves of a call share: the arguments of `play_pairs`, with one match seed per pair."""

    players: tuple[Player, Player]
    pair_seeds: I64
    mode: Mode
    game: ArenaGame
    source: GameSource
    recorder: Observer | None
    progress: Callable[[int], None] | None
    stopped: Callable[[], bool] | None

    @property
    def is_stopped(self) -> bool:
        """Whether somebody asked to end early."""
        return self.stopped is not None and self.stopped()

    def change_env(self, env: Any, num_matches: int) -> Any:
        """So many matches in place of others, None for none yet."""
        if env is not None:
            env.close()
        return self.source.batch(num_matches, record=self.recorder is not None)

    def patience(self, env: Callable[[], Any]) -> AbstractContextManager[None]:
        """Matches that take too long are void, instead of taking for ever: their engines are ended."""
        limit_s = PATIENCE_S + PATIENCE * self.game.length_s(self.source.options)
        return after(limit_s, lambda: self.game.kill(env()))


class _Wave:
    """M matches played side by side until each has its verdict.

    Slot n of the environment holds match `match_of[n]`; finished matches stay in their slot, unseen and unanswered,
    until so many are finished that moving the others into a smaller environment pays.
    """

    def __init__(self, terms: _Terms, games: Sequence[tuple[int, int]], env: Any) -> None:
        """games: (pair, leg 1 or 2) of each match. env: of as many matches."""
        self.started, self.clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
        matches = len(games)
        pair, leg = np.array(games).T
        self.terms = terms
        self.recorder = terms.recorder
        self.number = TEAMS * pair + leg - 1
        self.seeds = terms.pair_seeds[pair]
        self.leg = leg - 1
        self.match_of = np.arange(matches)
        self.playing = np.ones(matches, np.bool_)
        self.decision = 0
        # What is known of the M matches so far. Index [m, side]: side 0 is blue.
        self.ticks = np.zeros(matches, np.int64)
        self.entropy_sum = np.zeros((matches, TEAMS))
        self.entropy_rows = np.zeros((matches, TEAMS), np.int64)
        self.results: list[MatchResult | None] = [None] * matches
        self.game, self.env = terms.game, env
        if len(self.env.spec.sides) != TEAMS:
            raise EnvError(f"{terms.game.env} does not say who wins a match of two sides")
        self.team_of = np.array([agent.team for agent in self.env.spec.agents])
        self.states = memory_of(terms.players, matches, self.env.spec)

    def play(self) -> list[MatchResult | None]:
        """Step until every match has a verdict, or until stopped: None then stands for a match without one."""
        with ThreadPoolExecutor(1) as helper, self.terms.patience(lambda: self.env):
            while self.playing.any() and not self.terms.is_stopped:
                before = int(self.playing.sum())
                try:
                    self._play_decision(helper)
                except EnvError as error:
                    logger.warning("%s", error)
                    for n in np.flatnonzero(self.playing).tolist():
                        self._give_verdict(n, ("void", "engine"))
                    self.playing[:] = False
                if self.terms.progress is not None and (finished := before - int(self.playing.sum())):
                    self.terms.progress(finished)
                if 2 * self.playing.sum() <= len(self.playing):
                    self._compact()
        return self.results

    def _play_decision(self, helper: ThreadPoolExecutor) -> None:
        """One decision of all running matches, and the verdicts of those that it ends."""
        if self.decision == 0:
            self.env.reset(self.seeds)
        actions, probabilities, healthy = self._decide(helper)
        sick = self.playing & ~healthy.all(axis=1)
        for n in np.flatnonzero(sick).tolist():
            verdict: Verdict = "void" if not healthy[n].any() else "forfeit2" if healthy[n, 0] else "forfeit1"
            self._give_verdict(n, (verdict, "non_finite"))
        self.playing &= ~sick
        if self.recorder is not None:
            self.recorder.decision(self.env, self.number[self.match_of], self.playing, actions, probabilities)
        step = self.env.step(by_behavior(self.env.spec, actions))
        running = self.match_of[self.playing]
        self.ticks[running] += self.game.ticks(self.env)[self.playing]
        if self.recorder is not None:
            self.recorder.steps(self.env, self.number[self.match_of], self.playing)
        over = self.playing & step.match_over
        if np.isnan(step.points[over]).any():
            raise EnvError(f"{self.game.env} does not say who wins a match that is over")
        for n in np.flatnonzero(over).tolist():
            points = step.points[n].tolist()
            verdict = verdict_of(points)
            timed_out = verdict == "draw" or step.truncated[n].any()
            cause: Cause = "time_limit" if timed_out else self.game.decided_by
            self._give_verdict(n, (verdict, cause), self.game.score(points, step.stats.get(n, {})))
        self.playing &= ~over
        self.decision += 1

    def _decide(self, helper: ThreadPoolExecutor) -> tuple[I32, F32, Bool]:
        """Every running agent's choices [N, P, A] and probabilities [N, P, sum], and which sides are healthy [N, 2].

        Choices of finished matches are 0. Probabilities of bots are NaN. Where a behavior has fewer than others, so is
        the rest of its rows.
        """
        n, p = len(self.playing), len(self.team_of)
        columns, choices = widths(self.env.spec)
        actions = np.zeros((n, p, columns), np.int32)
        probabilities = np.full((n, p, choices), np.nan, np.float32)
        healthy = np.ones((n, TEAMS), np.bool_)
        # Agent slots of each player: A plays blue in leg 0, purple in leg 1.
        player_of = (self.team_of[None, :] != self.leg[self.match_of][:, None]).astype(np.int64)
        asked = self.playing[:, None] & self.env.active
        work = []
        for index, player in enumerate(self.terms.players):
            slots = asked & (player_of == index)
            if isinstance(player, Bot):
                self._ask_bot(player, slots, actions)
            else:
                work.append(questions_for(self.env, player, slots, self.states))
        # Two players think at the same time: onnxruntime and numpy release the interpreter while they multiply.
        matches = self.number[self.match_of]
        waiting = [helper.submit(ask, questions, self.states, matches) for questions in work[1:]]
        answers = [ask(questions, self.states, matches) for questions in work[:1]] + [w.result() for w in waiting]
        for question, answer in zip(chain(*work), chain(*answers), strict=True):
            self._take_answer(question, answer, actions, probabilities, healthy)
        return actions, probabilities, healthy

    def _ask_bot(self, bot: Bot, slots: Bool, actions: I32) -> None:
        for team in range(TEAMS):
            agents = np.flatnonzero(self.team_of == team)
            matches = np.flatnonzero(slots[:, agents].all(axis=1))
            if len(matches):
                actions[np.ix_(matches, agents)] = bot.act(self.env, team, matches)

    def _take_answer(self, question: Question, answer: F32, actions: I32, probabilities: F32, healthy: Bool) -> None:
        """Draw the choices of one policy's agents and note its entropy and whether it answered distributions."""
        n, agent = question.n, question.agent
        probabilities[n, agent, : answer.shape[1]] = answer
        good = question.answered_well(answer)
        healthy[n[~good], self.team_of[agent[~good]]] = False
        choices = question.choices(answer, self.seeds[self.match_of], self.decision, self.terms.mode)
        actions[n, agent, : choices.shape[1]] = choices
        index = (self.match_of[n[good]], self.team_of[agent[good]])
        np.add.at(self.entropy_sum, index, sampling.entropy(answer[good]))
        np.add.at(self.entropy_rows, index, 1)

    def _give_verdict(self, n: int, verdict: tuple[Verdict, Cause], score: tuple[int, int] = (0, 0)) -> None:
        match = int(self.match_of[n])
        seed, leg = int(self.seeds[match]), int(self.leg[match])
        sides = (self._side(match, 0), self._side(match, 1))
        ticks = int(self.ticks[match])
        own_id, unit_id = match_ids(self.game.env, seed, leg + 1, sides)
        result = MatchResult(
            id=own_id,
            unit_id=unit_id,
            env=self.game.env,
            seed=seed,
            leg=leg + 1,
            sides=sides,
            result=verdict[0],
            cause=verdict[1],
            score=score,
            duration_ticks=ticks,
            events=verdict_events(self.game.layout, *verdict, ticks),
            started=self.started,
            wall_ms=round(1e3 * (time.perf_counter() - self.clock), 1),
        )
        self.results[match] = result
        if self.recorder is not None:
            self.recorder.finish(int(self.number[match]), result)

    def _side(self, match: int, team: int) -> Side:
        player = self.terms.players[team if self.leg[match] == 0 else 1 - team]
        rows = int(self.entropy_rows[match, team])
        entropy = float(self.entropy_sum[match, team]) / rows if rows else None
        return Side(Entity(player.sha256 or "", player.name), self.terms.mode, entropy)

    def _compact(self) -> None:
        """Move the running matches into an environment of their number."""
        keep = np.flatnonzero(self.playing)
        if len(keep) == 0:
            return
        state = self.env.get_state()
        if state is None:
            return  # a game that cannot be saved
        state = {key: value[keep] if isinstance(value, np.ndarray) else value for key, value in state.items()}
        self.env = self.terms.change_env(self.env, len(keep))
        self.env.set_state(state)
        self.match_of = self.match_of[keep]
        self.playing = self.playing[keep]
        self.states = self.states[keep]
