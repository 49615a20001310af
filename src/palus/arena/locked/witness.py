"""Asks the players of a logged match again: whether each of its actions is one that they would have been drawn.

The match itself is played from its action log, so that what a player is shown here is what it was shown there, to the
bit. Its answers may differ in their last digits where another processor computed them; that moves no action by more
than `SLACK`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palus import envs
from palus.arena.locked.play import open_player
from palus.arena.locked.remote import Checks, RemotePlayer
from palus.arena.locked.sandbox import shared_sandbox
from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, Player
from palus.arena.models.rules import limits_of
from palus.arena.referee import sampling
from palus.arena.referee.actions import I8, Replayed, replay_match
from palus.arena.referee.games import playable_game
from palus.arena.referee.result import Mode
from palus.envs.protocol import observe_slots
from palus.types import F32

SLACK = 1e-3
"""Of a probability. Float32 networks agree to 1e-5 across processors."""


@dataclass(frozen=True)
class Testimony:
    """What the players say to a match. strange, choices: per side, actions that its player does not take, of how many.

    healthy: per side, whether it answered probabilities at the end. failed: per side, why its process ended.
    """

    again: Replayed
    strange: tuple[int, int]
    choices: tuple[int, int]
    healthy: tuple[bool, bool]
    failed: tuple[str, str]


def ask_again(env_id: str, seed: int, actions: bytes, contenders: tuple[Entity, Entity], mode: Mode) -> Testimony:
    """Play a match again and ask both players at every decision. contenders: blue first.

    Raises ReplayError and ArenaError as `replay_match` does.
    """
    game = playable_game(env_id)
    spec = envs.make(game.env, 1).spec
    with contextlib.ExitStack() as stack:
        players = []
        for side, contender in enumerate(contenders):
            if contender.house is not None:
                game.check_house(contender.house)
            checks = Checks(1.0, (seed, side))  # all the time: what was found now and then is found again
            players.append(open_player(contender, spec, limits_of(game), shared_sandbox(), checks))
            if isinstance(players[-1], RemotePlayer):
                stack.callback(players[-1].locked.close)
        witness = _Asking(players, seed, mode)
        again = replay_match(env_id, seed, actions, witness)
        failed = [(player.locked.cause or "") if isinstance(player, RemotePlayer) else "" for player in players]
    first, second = (witness.sides[side] for side in range(2))
    return Testimony(
        again,
        (first.strange, second.strange),
        (first.choices, second.choices),
        (first.healthy, second.healthy),
        (failed[0], failed[1]),
    )


@dataclass
class _Side:
    """What is known of one side so far."""

    strange: int = 0
    choices: int = 0
    healthy: bool = True


@dataclass
class _Asking:
    """A `Witness` that asks the players: blue first."""

    players: list[Player]
    seed: int
    mode: Mode
    states: dict[int, F32] = field(default_factory=dict)
    sides: tuple[_Side, _Side] = field(default_factory=lambda: (_Side(), _Side()))

    def see(self, env: Any, decision: int, choice: I8 | None) -> None:
        """Compare what was logged with what each player answers now."""
        for side, player in enumerate(self.players):
            agents = np.array([i for i, agent in enumerate(env.spec.agents) if agent.team == side])
            if isinstance(player, Bot):
                expected = player.act(env, side, np.array([0]))[0]
                fits = None if choice is None else choice[agents] == expected
            else:
                fits = self._ask(env, side, agents, decision, choice)
            if fits is not None:
                self.sides[side].choices += fits.size
                self.sides[side].strange += int(fits.size - fits.sum())

    def _ask(
        self, env: Any, side: int, agents: NDArray[np.int64], decision: int, choice: I8 | None
    ) -> NDArray[np.bool_] | None:
        """[agents, branches] which logged choices the policy could have been drawn; None when there is nothing to
        compare."""
        player, sizes = self.players[side], env.spec.behaviors[0].branches
        assert not isinstance(player, Bot)
        if decision == 0:
            self.states[side] = np.zeros((len(agents), player.state_size), np.float32)
        slots = np.isin(np.arange(len(env.spec.agents)), agents)[None]
        seen, masks = observe_slots(env, env.spec.behaviors[0], slots)
        answer, self.states[side] = player.answer(seen, self.states[side], masks)
        self.sides[side].healthy = bool(sampling.is_distribution(answer, sizes, masks).all())
        if choice is None:
            return None
        if not self.sides[side].healthy:
            return np.zeros((len(agents), len(sizes)), np.bool_)
        logged = choice[agents].astype(np.int32)
        if self.mode == "greedy":
            return sampling.could_be_best(answer, sizes, logged, SLACK)
        uniform = sampling.uniforms(np.full(len(agents), self.seed), decision, agents, len(sizes))
        return sampling.could_draw(answer, uniform, sizes, logged, SLACK)
