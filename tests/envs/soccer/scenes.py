"""Hand-made scenes for the SoccerTwos tests: one match, bodies parked where they do not disturb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palus.envs.protocol import observe_slots
from palus.envs.soccer.env import Soccer, SoccerTwos

FAR = [(-12.0, 6.0, 90.0), (-12.0, -6.0, 90.0), (-9.0, 6.0, 90.0), (-9.0, -6.0, 90.0)]
FAR_BALL = (12.0, 0.0)
S1 = [(0, 0, 90), (8, -3, -90), (-5, 5, 90), (-8, -6, -90)]
S1_BALL = (5, 0)


def set_scene(
    env: Soccer,
    match: int,
    agents: Sequence[tuple[float, float, float]],
    ball: tuple[float, float],
    *,
    agent_vel: Sequence[tuple[float, float]] | None = None,
    ball_vel: tuple[float, float] = (0.0, 0.0),
    ball_spin: float = 0.0,
    time: int = 0,
) -> None:
    """Place the bodies of one match by hand; its frames start anew as after a reset.

    agents: (x, z, yaw) of each.   ball: (x, z).   agent_vel: (x, z) m/s of each, default at rest.
    ball_spin: rad/s.   time: fixed steps since the start of the match.
    """
    state = env._state
    placed = np.asarray(agents, np.float32)
    state.position[match, :-1] = placed[:, :2]
    state.yaw[match] = placed[:, 2]
    state.position[match, -1] = ball
    state.velocity[match, :-1] = 0.0 if agent_vel is None else agent_vel
    state.velocity[match, -1] = ball_vel
    state.spin[match] = ball_spin
    state.push[match] = 0.0
    state.touching[match] = False
    state.time[match] = time
    env._kernels.look(state, match)


def scene(agents: dict[int, tuple[float, float, float]] | None = None, ball=FAR_BALL, **options: Any) -> SoccerTwos:
    """One recorded match; `agents` places some agents, the others are parked. options: see `set_scene`.

    `agent_vel` is a dict as well.
    """
    env = SoccerTwos(1, record=True, kick_point=options.pop("kick_point", "ball"))
    env.reset(np.array([1]))
    placed = [(agents or {}).get(a, FAR[a]) for a in range(4)]
    moving = options.pop("agent_vel", {})
    set_scene(env, 0, placed, ball, agent_vel=[moving.get(a, (0.0, 0.0)) for a in range(4)], **options)
    return env


def act(env: SoccerTwos, **actions: tuple[int, int, int]):
    """One decision of match 0; act(env, a0=(1, 0, 0)) presses forward on agent 0, the others stand still."""
    chosen = np.zeros((1, 4, 3), np.int32)
    for name, action in actions.items():
        chosen[0, int(name[1:])] = action
    return env.step([chosen])


def observation(env: SoccerTwos, agent: int) -> np.ndarray:
    """The 336 floats of one agent of match 0."""
    seen, _ = observe_slots(env, env.spec.behaviors[0], np.arange(4)[None] == agent)
    return np.concatenate([rows[0] for rows in seen.values()])


def rays(env: SoccerTwos, agent: int) -> list[tuple[int, float]]:
    """(slot, fraction) of the newest frame: 11 forward rays, then 3 reverse rays; slot 6 means nothing hit."""
    seen = observation(env, agent)
    frame = np.concatenate([seen[176:264], seen[312:336]]).reshape(14, 8)
    assert (frame[:, :7].sum(axis=1) == 1).all()
    return [(int(np.argmax(row[:7])), float(row[7])) for row in frame]
