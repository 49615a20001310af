"""Ray casts and stacking against vectors worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scenes import S1, S1_BALL, act, observation, rays, scene, set_scene

from palus.envs.protocol import observe_slots, room_for
from palus.envs.soccer.env import SoccerTwos, StrikersVsGoalie
from palus.nn.preprocessing import expanded
from palus.types import RAY_DISTANCES, RAY_TAGS

BALL, OWN_GOAL, GOAL, WALL, MATE, OPPONENT, NOTHING = range(7)


def s1():
    return scene(dict(enumerate(S1)), S1_BALL)


def test_blue_sees_the_reference_scene():
    seen = rays(s1(), 0)
    expected = [
        (BALL, 0.19966), (GOAL, 0.86163), (GOAL, 0.86163), (OPPONENT, 0.39155), (WALL, 0.75400), (WALL, 0.59614),
        (WALL, 0.59614), (WALL, 0.47151), (WALL, 0.47151), (WALL, 0.40461), (WALL, 0.40461),
        (OWN_GOAL, 0.84363), (MATE, 0.31025), (WALL, 0.49555),
    ]  # fmt: skip
    assert [slot for slot, _ in seen] == [slot for slot, _ in expected]
    assert [d for _, d in seen] == pytest.approx([d for _, d in expected], abs=1e-5)


def test_purple_sees_the_reference_scene_in_its_own_tags():
    seen = rays(s1(), 1)
    expected = [
        (NOTHING, 1.0), (NOTHING, 1.0), (MATE, 0.77510), (OPPONENT, 0.39155), (WALL, 0.49271), (BALL, 0.17166),
        (WALL, 0.34095), (BALL, 0.16274), (WALL, 0.26967), (WALL, 0.57782), (WALL, 0.23141),
        (OWN_GOAL, 0.44280), (WALL, 0.28341), (OWN_GOAL, 0.49460),
    ]  # fmt: skip
    assert [slot for slot, _ in seen] == [slot for slot, _ in expected]
    assert [d for _, d in seen] == pytest.approx([d for _, d in expected], abs=1e-5)


@pytest.mark.parametrize(
    ("ball", "slot", "fraction"),
    [
        ((4, 0.5), BALL, 0.156303),
        ((1.13, 0), BALL, 0.006157),
        ((1.0, 0), GOAL, 0.84280),  # overlaps the start of the cast: invisible
    ],
)
def test_single_ray_to_the_ball(ball, slot, fraction):
    seen = rays(scene({0: (0, 0, 90)}, ball), 0)[0]
    assert seen == (slot, pytest.approx(fraction, abs=1e-5))


def test_single_ray_to_an_agent():
    assert rays(scene({0: (0, 0, 90), 1: (2, 0, 0)}, (-3, 3)), 0)[0] == (OPPONENT, pytest.approx(0.056699, abs=1e-6))


def test_wall_is_seen_up_to_contact_and_not_beyond():
    assert rays(scene({0: (0, 7.0, 0)}), 0)[0] == (WALL, pytest.approx(0.000404, abs=1e-6))
    assert rays(scene({0: (0, 7.0081, 0)}), 0)[0] == (NOTHING, 1.0)


def test_agent_pressed_against_a_corner_wall_sees_through_it():
    # Distance to the inner face of the (+, +) corner wall: 0.4 < 0.5.
    x, z = 14.4, (15.497 - 0.4 - 0.866025 * 14.4) / 0.5
    seen = rays(scene({0: (x, z, 60)}), 0)
    assert seen[0] == (NOTHING, 1.0)


def test_frames_are_stacked_oldest_first_and_start_as_zeros():
    env = s1()
    first = observation(env, 0)
    assert not first[:176].any() and not first[264:312].any()
    act(env, a0=(0, 0, 2))
    second = observation(env, 0)
    act(env)
    third = observation(env, 0)
    assert not second[:88].any() and not second[264:288].any()
    assert np.array_equal(second[88:176], first[176:264]) and np.array_equal(second[288:312], first[312:])
    assert np.array_equal(third[:88], first[176:264]) and np.array_equal(third[264:288], first[312:])
    assert np.array_equal(third[88:176], second[176:264])
    assert not np.array_equal(second[176:264], first[176:264])


def test_rays_agree_with_marching_a_point_through_the_grown_rectangles():
    """Independent of the closed forms: step along each ray until an obstacle is closer than its reach."""
    from palus.envs.soccer.geometry import RECTANGLES

    rng = np.random.default_rng(3)
    angles = np.radians([90, 78, 102, 66, 114, 54, 126, 42, 138, 30, 150, 270, 225, 315])
    steps = np.arange(0.0, 20.0, 0.004)[:, None]
    for _ in range(12):
        x, z, yaw = rng.uniform(-13, 13), rng.uniform(-6.5, 6.5), rng.uniform(-180, 180)
        ball = (rng.uniform(-10, 10), rng.uniform(-6, 6))
        env = scene({0: (x, z, yaw)}, ball)
        others = env.agent_pos[0, 1:].astype(float)
        psi = np.radians(yaw)
        px = x + steps * (np.cos(angles) * np.cos(psi) + np.sin(angles) * np.sin(psi))
        pz = z + steps * (np.sin(angles) * np.cos(psi) - np.cos(angles) * np.sin(psi))
        hit = np.zeros(px.shape, bool)
        for cx, cz, half_x, half_z, cos, sin in RECTANGLES.astype(float):
            rx, rz = px - cx, pz - cz
            out_x = np.maximum(abs(rx * cos - rz * sin) - half_x, 0)
            out_z = np.maximum(abs(rx * sin + rz * cos) - half_z, 0)
            grown = np.hypot(out_x, out_z) <= 0.5
            hit |= grown & ~grown[0]
        for cx, cz, reach in [(*ball, 1.0068554), *((ox, oz, 0.8660254) for ox, oz in others)]:
            disc = np.hypot(px - cx, pz - cz) <= reach
            hit |= disc & ~disc[0]
        marched = np.where(hit.any(axis=0), steps[np.argmax(hit, axis=0), 0], 20.0)
        assert [d * 20 for _, d in rays(env, 0)] == pytest.approx(marched.tolist(), abs=0.02)


def test_every_distance_is_a_share_of_the_ray_whatever_the_heading():
    env = SoccerTwos(720)
    env.reset(np.arange(720))
    random = np.random.default_rng(0)
    for _ in range(40):
        x, z = random.uniform(-13, 13, 720), random.uniform(-7, 7, 720)
        for n in range(720):
            # half-degree headings hold every one at which a ray of the fan is parallel to a wall
            yaw = n / 2 - 180
            agents = [(x[n], z[n], yaw), (-x[n], z[n], yaw), (x[n], -z[n], yaw), (0.0, z[n], yaw)]
            set_scene(env, n, agents, (z[n], x[n] / 2))
        seen, _ = observe_slots(env, env.spec.behaviors[0], np.ones((720, 4), np.bool_))
        assert min(out.min() for out in seen.values()) >= 0.0
        assert max(out.max() for out in seen.values()) <= 1.0


@pytest.mark.parametrize("make", [SoccerTwos, StrikersVsGoalie])
def test_the_compact_form_of_rays_is_the_whole_to_the_bit(make):
    env = make(3, max_steps=40)
    env.reset(np.arange(3))
    for _ in range(12):  # through the first frames, in which there are no older ones, and a match's end
        for behavior in env.spec.behaviors:
            rows = np.arange(3 * len(env.spec.agents_of(behavior.name)), dtype=np.int32).reshape(3, -1)
            for look in (env.observe, env.observe_final):
                whole, compact = room_for(behavior, rows.size), room_for(behavior, rows.size, rays=True)
                look(behavior.name, rows, whole)
                look(behavior.name, rows, compact)
                assert sum(x.nbytes for x in compact.values()) * 4 < sum(x.nbytes for x in whole.values())
                for name, seen in whole.items():
                    parts = (torch.from_numpy(compact[name + part]) for part in (RAY_TAGS, RAY_DISTANCES))
                    assert torch.equal(expanded(*parts, seen.shape[1]), torch.from_numpy(seen))
        env.step([np.ones((3, len(env.spec.agents_of(b.name)), 3), np.float32) for b in env.spec.behaviors])
