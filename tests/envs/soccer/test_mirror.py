"""The mirror image of a pitch is played by the same rules: what `Role.reflection` says of it is true of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import set_scene

from palus import envs


def seen(env, behavior):
    agents = env.spec.agents_of(behavior.name)
    rows = np.arange(len(agents), dtype=np.int32)[None]
    out = {o.name: np.empty((len(agents), o.size), np.float32) for o in behavior.observations}
    env.observe(behavior.name, rows, out)
    return np.concatenate(list(out.values()), 1)


@pytest.mark.parametrize("game", ["SoccerTwos", "StrikersVsGoalie"])
def test_a_mirrored_match_is_seen_and_played_in_the_mirror(game) -> None:
    random = np.random.default_rng(4)
    plain, mirrored = envs.make(game, 1), envs.make(game, 1)
    for env in (plain, mirrored):
        env.reset(np.zeros(1, np.int64))
    at = [(x, z, yaw) for (x, z), yaw in zip([(-6, 2), (-3, -3), (4, 1), (7, -2)], (80, 130, -100, -60), strict=True)]
    at = at[: plain.spec.num_agents]
    set_scene(plain, 0, at, (0.5, -1.0), ball_vel=(3.0, 2.0))
    set_scene(mirrored, 0, [(x, -z, 180 - yaw) for x, z, yaw in at], (0.5, 1.0), ball_vel=(3.0, -2.0))
    for _ in range(6):
        for behavior in plain.spec.behaviors:
            assert behavior.reflection is not None
            image = seen(plain, behavior)[:, list(behavior.reflection.observations)]
            np.testing.assert_allclose(seen(mirrored, behavior), image, atol=1e-3)
        actions = [
            random.integers(0, 3, (1, len(plain.spec.agents_of(b.name)), 3)).astype(np.float32)
            for b in plain.spec.behaviors
        ]
        images = []
        for behavior, chosen in zip(plain.spec.behaviors, actions, strict=True):
            likeliest = np.eye(3)[chosen.astype(int)].reshape(-1, 9)[:, list(behavior.reflection.logits)]
            images.append(likeliest.reshape(*chosen.shape, 3).argmax(-1).astype(np.float32))
        ours, theirs = plain.step(actions), mirrored.step(images)
        np.testing.assert_array_equal(ours.reward, theirs.reward)
    np.testing.assert_allclose(plain.ball_pos * [1, -1], mirrored.ball_pos, atol=1e-3)
    np.testing.assert_allclose(plain.agent_pos * [1, -1], mirrored.agent_pos, atol=1e-3)
