"""Experts at play: the episodes of one behavior's agents, as demonstration files hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from palus.arena.models.players import Bot
from palus.envs.protocol import MultiAgentEnv, observe_slots, room_for
from palus.run.evaluate import Decide
from palus.types import F32, MASKS, AnyArray, BehaviorSpec
from palus.unity.demonstrations import ExpertEpisode


@dataclass
class _Diary:
    """One agent's episode so far, decision by decision."""

    seen: list[Mapping[str, AnyArray]] = field(default_factory=list)
    actions: list[F32] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    group_rewards: list[float] = field(default_factory=list)

    def episode(self, truncated: bool, last: Mapping[str, AnyArray] | None) -> ExpertEpisode:
        rows = {name: np.stack([step[name] for step in self.seen]) for name in self.seen[0]}
        masks = rows.pop(MASKS, None)
        own, of_group = np.array(self.rewards, np.float32), np.array(self.group_rewards, np.float32)
        return ExpertEpisode(rows, np.stack(self.actions), masks, own, of_group, truncated, last)


def play_episodes(
    env: MultiAgentEnv, behavior: BehaviorSpec, experts: Mapping[str, Decide] | Bot, seed: int
) -> Iterator[ExpertEpisode]:
    """Every episode of the behavior's agents, as they end, without an end.

    env: of one match; experts: who plays each behavior, or who plays them all. Raises EnvError.
    """
    spec, own = env.spec, env.spec.agents_of(behavior.name)
    width = 0 if isinstance(experts, Bot) else max(expert.state_size for expert in experts.values())
    states, counts = np.zeros((spec.num_agents, width), np.float32), np.zeros((2, spec.num_agents), np.int64)
    diaries = {agent: _Diary() for agent in own}
    env.reset(np.array([seed], np.int64))
    while True:
        active, actions = env.active.copy(), []
        for kind in spec.behaviors:
            agents = np.array(spec.agents_of(kind.name))
            slots = active[:, agents]
            seen, masks = observe_slots(env, kind, slots)
            seen |= {} if masks is None else {MASKS: masks}
            chosen, deciding = np.zeros((1, len(agents), kind.actions.columns), np.float32), agents[slots[0]]
            if isinstance(experts, Bot):
                for team in sorted({spec.agents[agent].team for agent in agents}):
                    of_team = [k for k, agent in enumerate(agents) if spec.agents[agent].team == team]
                    chosen[0, of_team] = experts.act(env, team, np.zeros(1, np.int64))[0]
            elif len(deciding):
                expert = experts[kind.name]
                memory = states[deciding, : expert.state_size]
                numbers = counts[0, deciding] * spec.num_agents + deciding
                chosen[slots], states[deciding, : expert.state_size] = expert(
                    seen, memory, numbers, counts[1, deciding]
                )
            actions.append(chosen)
            if kind.name == behavior.name:
                for row, agent in enumerate(deciding.tolist()):
                    diaries[agent].seen.append({name: array[row].copy() for name, array in seen.items()})
                    diaries[agent].actions.append(chosen[slots][row].copy())
        counts[1] += active[0]
        step = env.step(actions)
        ended = (step.terminated | step.truncated) & active
        for agent in [agent for agent in own if active[0, agent]]:
            diary = diaries[agent]
            diary.rewards.append(float(step.reward[0, agent]))
            diary.group_rewards.append(float(step.group_reward[0, agent]))
            if ended[0, agent]:
                truncated = bool(step.truncated[0, agent])
                last = _last(env, behavior, own.index(agent)) if truncated else None
                yield diary.episode(truncated, last)
                diaries[agent] = _Diary()
        states[ended[0]], counts[1, ended[0]] = 0.0, 0
        counts[0] += ended[0]


def _last(env: MultiAgentEnv, behavior: BehaviorSpec, place: int) -> dict[str, AnyArray]:
    """What an agent that was cut off saw last. place: among the behavior's agents."""
    rows = np.full((1, len(env.spec.agents_of(behavior.name))), -1, np.int32)
    rows[0, place] = 0
    room = room_for(behavior, 1, masks=False)
    env.observe_final(behavior.name, rows, room)
    return {name: array[0] for name, array in room.items()}
