"""From one contract to the other: games that step alone as a batch, one match of a batch as a game that steps alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palus.envs.game import Actions, Arrays, EngineGame, Game, GameStep, by_behavior, joined, set_parameters, whole
from palus.envs.protocol import MultiAgentEnv, room_for
from palus.errors import EnvError
from palus.types import F32, F64, I32, I64, MASKS, AnyArray, Bool, Step


class Matches:
    """`num_matches` instances of a game, whose states cannot be saved; the seeds of their episodes follow from the
    slot's. An episode begins when somebody looks: who needs one match of each pays for no second.

    games: the instances. shaping: their own, [N] of [P, numbers], where they have any.
    pictures: where they are recorded, [N] of those that the latest decision brought, before any restart: the last one,
    or with `every_tick` all that an `EngineGame` draws.
    """

    def __init__(
        self,
        make: Callable[[], Game],
        num_matches: int,
        *,
        record: bool = False,
        alive: Callable[[], object] = lambda: None,
    ) -> None:
        """alive: called after each thing that a game does: many games together may take minutes.

        Raises what `make` raises; games made by then are closed.
        """
        self.games: list[Game] = []
        try:
            for _ in range(num_matches):
                self.games.append(make())
        except BaseException:
            self.close()
            raise
        if not self.games:
            raise EnvError(f"num_matches is {num_matches}; give at least 1")
        self.spec, self.num_matches = whole(self.games[0].spec), num_matches
        shape = (num_matches, self.spec.num_agents)
        self._no_points: F32 = np.full((num_matches, len(self.spec.sides)), np.nan, np.float32)
        self.record, self.every_tick, self._alive = record, False, alive
        self.pictures: list[list[AnyArray]] = [[] for _ in range(num_matches)]
        self._active: Bool = np.zeros(shape, np.bool_)
        self._over: Bool = np.zeros(num_matches, np.bool_)
        self.shaping: list[F64] = [getattr(game, "shaping", np.zeros((shape[1], 0))) for game in self.games]
        self._keys: Sequence[tuple[int, ...]] = [(0,)] * num_matches
        self._episodes = np.zeros(num_matches, np.int64)
        rooms = [
            {b.name: room_for(b, len(self.spec.agents_of(b.name))) for b in self.spec.behaviors}
            for _ in range(2 * num_matches)
        ]
        self._agents = {b.name: np.array(self.spec.agents_of(b.name)) for b in self.spec.behaviors}
        self._seen, self._finals = rooms[:num_matches], rooms[num_matches:]
        self._looked: Bool = np.zeros(num_matches, np.bool_)
        self._ended: Bool = np.zeros(shape, np.bool_)

    @property
    def active(self) -> Bool:
        """As `MultiAgentEnv` has it."""
        if self._over.any():
            for n in np.flatnonzero(self._over).tolist():
                self.begin(n)
        return self._active

    def reset(self, seeds: I64) -> None:
        """Start an episode of every game."""
        self.restart([(seed,) for seed in seeds.tolist()])

    def restart(self, keys: Sequence[tuple[int, ...]]) -> None:
        """The same; the seed of a game's episode k, from 1 on, follows from the numbers of its key and k."""
        self._keys, self._episodes[:] = keys, 0
        for n in range(self.num_matches):
            self.begin(n)

    def begin(self, n: int) -> None:
        """Start the next episode of one game."""
        self._episodes[n] += 1
        seed = np.random.SeedSequence((*self._keys[n], int(self._episodes[n]))).generate_state(1)[0]
        self.games[n].reset(int(seed >> 1))
        self._active[n], self._over[n], self._looked[n] = self.games[n].active, False, False
        self._alive()

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write what the active agents see that have a row. A game is asked once a decision, whoever wants to know."""
        wanted = self.active[:, self._agents[behavior]] & (rows >= 0)
        # All agents at once, in neighbouring rows: nobody else will ask, and pictures need no copy.
        together = wanted.all(1) & (rows[:, 1:] == rows[:, :-1] + 1).all(1) & (len(self.spec.behaviors) == 1)
        for n, first in zip(np.flatnonzero(together).tolist(), rows[together, 0].tolist(), strict=True):
            own = slice(first, first + rows.shape[1])
            self.games[n].observe({name: array[own] for name, array in out.items()})
            self._alive()
        for n in np.flatnonzero(wanted.any(1) & ~together).tolist():
            if not self._looked[n]:
                self.games[n].observe(joined(self.spec, self._seen[n]))
                self._looked[n] = True
                self._alive()
            _copy(self._seen[n][behavior], wanted[n], rows[n], out)

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write what the agents truncated in the latest step saw last."""
        wanted = self._ended[:, self._agents[behavior]] & (rows >= 0)
        for n in np.flatnonzero(wanted.any(1)).tolist():
            _copy(self._finals[n][behavior], wanted[n], rows[n], out)

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision of every game, one after another."""
        spec, active = self.spec, self.active
        shape = active.shape
        rewards = np.zeros((2, *shape), np.float32)
        flags = np.zeros((2, *shape), np.bool_)
        points = self._no_points.copy()
        stats: dict[int, Mapping[int, Mapping[str, float]]] = {}
        result = Step(rewards[0], rewards[1], flags[0], flags[1], np.zeros(shape[0], np.bool_), points, stats)
        names = [behavior.name for behavior in spec.behaviors]
        self._looked[:] = False
        for n, (game, *own) in enumerate(zip(self.games, *actions, strict=True)):
            step = self._step(n, joined(spec, dict(zip(names, own, strict=True))))
            self._alive()
            result.reward[n], result.terminated[n], result.truncated[n] = step.reward, step.terminated, step.truncated
            if step.group_reward is not None:
                result.group_reward[n] = step.group_reward
            if step.stats:
                stats[n] = {agent: dict(numbers) for agent, numbers in step.stats.items()}
            result.match_over[n] = self._over[n] = step.over
            if step.over:
                if (active[n] & ~(step.terminated | step.truncated)).any():
                    raise EnvError(
                        f"game {n} of {spec.env_id} is over, but the episode of an active agent was neither "
                        "terminated nor truncated; its step has to set one of them for every agent"
                    )
                if step.points:
                    points[n] = step.points
            else:
                active[n] = game.active
        self._ended = result.truncated
        for n in np.flatnonzero(result.truncated.any(1)).tolist():
            self.games[n].observe_final(joined(spec, self._finals[n]))
        return result

    def _step(self, n: int, actions: Any) -> GameStep:
        """One decision of a game, and its pictures."""
        game, seen = self.games[n], list[AnyArray]()
        if not self.record:
            return game.step(actions)
        engine = game if self.every_tick and isinstance(game, EngineGame) else None
        if engine is not None:
            engine.recorder = seen.append
        try:
            step = game.step(actions)
        finally:
            if engine is not None:
                engine.recorder = None
        self.pictures[n] = seen or [game.render()]
        return step

    def set_parameters(self, parameters: Mapping[str, float | F64]) -> None:
        """Change numbers of all games. Raises EnvError for names that they do not have."""
        each = {name: np.broadcast_to(value, self.num_matches).tolist() for name, value in parameters.items()}
        for n, game in enumerate(self.games):
            set_parameters(game, {name: values[n] for name, values in each.items()})

    def get_state(self) -> None:
        """A game that steps alone need not be able to save itself."""

    def set_state(self, state: dict[str, object]) -> None:
        """Raises EnvError: there is no state to restore."""
        raise EnvError(f"{self.spec.env_id} cannot be saved, so it cannot be restored; start it anew")

    def close(self) -> None:
        """Close all games."""
        for game in self.games:
            game.close()
        self.games = []


def _copy(seen: Mapping[str, AnyArray], wanted: Bool, rows: I32, out: Mapping[str, AnyArray]) -> None:
    for name, array in out.items():
        array[rows[wanted]] = seen[name][wanted]


class OneMatch:
    """A `MultiAgentEnv` with `num_matches` 1, which it closes. Every match begins with `reset`, from its own seed."""

    def __init__(self, env: MultiAgentEnv) -> None:
        if env.num_matches != 1:
            raise EnvError(f"{env.spec.env_id} plays {env.num_matches} matches at once; make it with num_matches 1")
        self.spec = whole(env.spec)
        self._env = env
        sizes = {behavior.name: len(env.spec.agents_of(behavior.name)) for behavior in env.spec.behaviors}
        self._rows = {name: np.arange(size, dtype=np.int32)[None] for name, size in sizes.items()}

    @property
    def active(self) -> Bool:
        """The environment's own."""
        active: Bool = self._env.active[0]
        return active

    def reset(self, seed: int) -> None:
        """Start the match of that seed."""
        self._env.reset(np.array([seed], np.int64))

    def observe(self, out: Arrays) -> None:
        """Write what active agents see."""
        for name, own in by_behavior(self.spec, out).items():
            self._env.observe(name, self._rows[name], own)

    def observe_final(self, out: Arrays) -> None:
        """Write what truncated agents saw last; their masks stay as they are."""
        for name, own in by_behavior(self.spec, out).items():
            self._env.observe_final(name, self._rows[name], {n: seen for n, seen in own.items() if n != MASKS})

    def step(self, actions: Actions) -> GameStep:
        """One decision; a match without a verdict has no points."""
        given = by_behavior(self.spec, actions)
        step = self._env.step([given[behavior.name][None] for behavior in self.spec.behaviors])
        over = bool(step.match_over[0])
        points = () if not over or np.isnan(step.points[0]).any() else tuple(step.points[0].tolist())
        ends, stats = (step.terminated[0], step.truncated[0]), step.stats.get(0, {})
        return GameStep(step.reward[0], *ends, over, stats, points, step.group_reward[0])

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """Change numbers of the game from the next decision on. Raises EnvError for names that it does not have."""
        self._env.set_parameters(parameters)

    def render(self) -> AnyArray:
        """EnvError: batched games draw no pictures."""
        raise EnvError(f"{self.spec.env_id} draws no pictures; watch its matches in the arena")

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
