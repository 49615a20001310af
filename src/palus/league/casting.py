"""Who plays in a sampled game: which policy decides for each agent, drawn anew at every start of a game."""

from __future__ import annotations

from palus.nn.counter import uniform


class Casting:
    """Draws a policy for each agent, or one for all of a game. Draws are counted per game, so that they repeat.

    policies: how many there are; agents: of a game; mix: agents of one game may follow different policies.
    """

    def __init__(self, policies: int, agents: int, mix: bool, seed: int) -> None:
        self.policies, self.agents, self.mix, self.seed = policies, agents, mix, seed
        self.restart(0)

    def restart(self, counter: int) -> None:
        """All games start anew, for the `counter`-th time: another series of draws."""
        self._counter = counter
        self._starts: dict[int, int] = {}

    def __call__(self, game: int) -> list[int]:
        """Policy ids of the agents of a game that starts now."""
        if self.policies == 1:
            return [0] * self.agents
        start = self._starts[game] = self._starts.get(game, 0) + 1
        keys = range(self.agents) if self.mix else [0] * self.agents
        tick = (self._counter << 32) | start
        return [int(uniform(self.seed, tick, game, key) * self.policies) for key in keys]
