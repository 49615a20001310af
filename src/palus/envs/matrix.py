"""Matrix games: one decision of two, whose right answer is known exactly. For whoever doubts a way of self-play.

The payoff is what a match brings on average: of two strategies with payoff a the first wins with probability a, or with
-a the second, and else they draw. The two see nothing, so a policy is one mixture of strategies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palus.envs.toy import Toy, View, draw
from palus.errors import EnvError
from palus.types import F32, F64, AgentSpec, BehaviorSpec, GameSpec, Step

ROCK_PAPER_SCISSORS: F64 = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
_STEPS = 1 << 20
"""Of the payoff of a random game, and of chance in a match."""


def exploitability(payoffs: F64, policy: F64) -> float:
    """What the best answer wins from a policy on average: 0 for a Nash equilibrium, 1 at most.

    payoffs: [S, S] antisymmetric, of the row player. policy: [S] probabilities.
    """
    return float((payoffs @ policy).max())


def random_payoffs(strategies: int, seed: int) -> F64:
    """[S, S] antisymmetric, independent and even in [-1, 1]; the same ones for a seed everywhere."""
    upper = np.triu_indices(strategies, 1)
    payoffs = np.zeros((strategies, strategies))
    counters = np.arange(len(upper[0]))
    payoffs[upper] = draw(np.full_like(counters, seed), counters, 2 * _STEPS + 1) / _STEPS - 1.0
    return payoffs - payoffs.T


class MatrixGame(Toy):
    """Two teams of one choose a strategy each, and the match is over.

    Group reward: +1 winner, -1 loser, 0 each for a draw. Observation, 1 float: always 1. Actions: one branch of S.
    """

    ROUNDS = 1

    def __init__(self, name: str, payoffs: F64, num_matches: int) -> None:
        """name: of the game and of its behavior. payoffs: [S, S] antisymmetric, in [-1, 1]. num_matches: N."""
        behavior = BehaviorSpec.of_vectors(name, (1,), (len(payoffs),))
        agents = (AgentSpec("left", 0, 0, name), AgentSpec("right", 1, 1, name))
        super().__init__(GameSpec(name, (behavior,), agents, max_decisions=self.ROUNDS), num_matches)
        self.payoffs = payoffs

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        left, right = actions[0][:, :, 0].astype(np.int64).T
        payoff = self.payoffs[left, right]
        result = np.sign(payoff) * (draw(self._seeds, self._drawn, _STEPS) < np.abs(payoff) * _STEPS)
        step.group_reward[:, 0], step.group_reward[:, 1] = result, -result
        step.points[:, 0], step.points[:, 1] = (1 + result) / 2, (1 - result) / 2

    def _view(self, behavior: str) -> View:
        return {"obs_0": np.ones((self.num_matches, 2, 1), np.float32)}


def rock_paper_scissors(num_matches: int) -> MatrixGame:
    """The smallest game in which who beats the latest is beaten by the one before. num_matches: N."""
    return MatrixGame("RockPaperScissors", ROCK_PAPER_SCISSORS, num_matches)


def random_matrix(num_matches: int, *, strategies: int = 20, seed: int = 0) -> MatrixGame:
    """A game with cycles in cycles. strategies: S; seed: of the payoffs. Raises EnvError."""
    if not 2 <= strategies <= 1000:
        raise EnvError(f"strategies {strategies}; expected 2 to 1000")
    return MatrixGame("RandomMatrix", random_payoffs(strategies, seed), num_matches)
