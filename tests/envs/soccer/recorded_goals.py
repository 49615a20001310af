"""Recordings made by hand, of matches of two against two, for tests of what is worth watching."""

import numpy as np

from palus.envs.recording import RecordedEvent, Recording

BLUE_A, PURPLE_A, BLUE_B, PURPLE_B = range(4)


def kick(tick, agent):
    return RecordedEvent(tick, "kick", agent % 2, agent)


def recording(*kicks, goal=1000, scorer=0, speed=0.0, names=("mine", "theirs")):
    """A match that ends with a goal of `scorer` at tick `goal` (None: without one), the ball rolling at `speed` m/s."""
    events = [kick(tick, agent) for tick, agent in kicks]
    if goal is not None:
        events.append(RecordedEvent(goal, "goal", scorer, -1))
    frames = np.zeros((20, 14), np.float32)
    frames[:, 12] = np.arange(20) * speed * 0.02  # 50 frames per second
    score = (0, 0) if goal is None else ((1, 0), (0, 1))[scorer]
    result = "draw" if goal is None else ("blue", "purple")[scorer]
    actions = np.zeros((4, 4, 3), np.int8)
    return Recording("SoccerTwos", 0, names, frames, actions, None, tuple(events), score, result)
