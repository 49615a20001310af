"""A game that talks (`palus.unity.news`), played by policies that do not learn: what matches and evaluations share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from palus.envs.game import draw_actions
from palus.run.evaluate import Decide
from palus.types import F32, MASKS, BehaviorSpec
from palus.unity.news import News, Steps, TalkingGame, behavior_of
from palus.unity.squads import Ended, Squad, squad_of


@dataclass(kw_only=True)
class Speaker(Ended):
    """An agent in its episode, the `number`th that began. reward: so far, with its group's; state: its memory."""

    name: str
    number: int
    state: F32
    reward: float = 0.0


def exchanges(
    game: TalkingGame, seed: int, decides: Callable[[str, BehaviorSpec], Decide | None]
) -> Iterator[tuple[list[Speaker], set[Squad], dict[str, int]]]:
    """Play from the beginning, for ever; a message is answered when the next one is asked for.

    decides: behavior id, and what its agents see and do -> who plays it; None plays at random. Returns of each message
    whose episodes are over, the squads of those that go on, and behavior id -> how many ask for a decision. Raises what
    `decides` and the game raise.
    """
    waiting: dict[tuple[str, int], Speaker] = {}
    numbers, random = count(), np.random.default_rng(seed)

    def answer(name: str, steps: Steps) -> F32:
        """[n, A] for those of a behavior id that ask."""
        spec = game.behaviors[name]
        player = decides(name, spec)
        if player is None:
            return draw_actions(spec.actions, len(steps), steps.observations.get(MASKS), random)
        asking = []
        for agent, group in zip(steps.agent.tolist(), steps.group.tolist(), strict=True):
            if (name, agent) not in waiting:
                squad, memory = squad_of(behavior_of(name)[1], agent, group), np.zeros(player.state_size, np.float32)
                waiting[name, agent] = Speaker(squad, agent, name=name, number=next(numbers), state=memory)
            asking.append(waiting[name, agent])
        episodes, decisions = (np.array([getattr(own, key) for own in asking]) for key in ("number", "decisions"))
        actions, after = player(steps.observations, np.stack([own.state for own in asking]), episodes, decisions)
        for own, state in zip(asking, after, strict=True):
            own.decisions, own.state = own.decisions + 1, state.copy()
        return actions

    game.reset({}, seed % 2**31)
    while True:
        news = game.receive()
        ended = _paid(news, waiting)
        there = {own.squad for own in waiting.values()}
        yield ended, there, {name: len(steps) for name, steps in news.decisions.items()}
        game.send({name: answer(name, steps) for name, steps in news.decisions.items()})


def _paid(news: News, waiting: dict[tuple[str, int], Speaker]) -> list[Speaker]:
    """Pay everybody who waits; returns those whose episodes are over, who wait no more."""
    ended = []
    for told, over in ((news.ends, True), (news.decisions, False)):
        for name, steps in told.items():
            paid = steps.reward + steps.group_reward
            for agent, reward in zip(steps.agent.tolist(), paid.tolist(), strict=True):
                own = waiting.get((name, agent))
                if own is None:
                    continue
                own.paid, own.reward = reward, own.reward + reward
                if over:
                    ended.append(waiting.pop((name, agent)))
    return ended
