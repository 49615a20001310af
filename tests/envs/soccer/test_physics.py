"""Single fixed steps against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import FAR

from palus.envs.soccer import physics
from palus.envs.soccer.compile import compiled
from palus.envs.soccer.physics import HEADING, face, new_scratch
from palus.envs.soccer.pitch import PITCH

# What it calls is called from nowhere else, which compiles sooner.
(fixed_step,) = compiled([physics.fixed_step], "alone", PITCH=PITCH)

BALL = 4
FORWARD = (1, 0, 0)
INNER_FACE = 7.508072
BALL_AT_WALL = INNER_FACE - 0.6241719


class World:
    """The five bodies of one match; agents 1 to 3 are parked."""

    def __init__(self, agent=FAR[0], agent_vel=(0, 0), ball=(12, 0), ball_vel=(0, 0)):
        self.position = np.array([agent[:2], *(p[:2] for p in FAR[1:]), ball], np.float32)
        self.velocity = np.zeros((5, 2), np.float32)
        self.velocity[0], self.velocity[BALL] = agent_vel, ball_vel
        self.yaw = np.array([agent[2], *(p[2] for p in FAR[1:])], np.float32)
        self.spin, self.push = np.zeros(1, np.float32), np.zeros(2, np.float32)
        self.touching = np.zeros(4, np.bool_)

    def step(self, *action, on_ball=True):
        """One fixed step with this action of agent 0; returns (bit set of new touches, kicker)."""
        actions = np.zeros((4, 3), np.int32)
        actions[0] = action or (0, 0, 0)
        scratch = new_scratch()
        face(self.yaw, scratch[HEADING])
        return fixed_step(
            self.position, self.velocity, self.spin, self.yaw, self.push, self.touching, actions, on_ball, scratch
        )


def test_forward_drive_from_rest():
    world = World((0, 0, 90))
    speeds = []
    for _ in range(5):
        world.step(*FORWARD)
        speeds.append(world.velocity[0, 0])
    assert speeds == pytest.approx([1.88, 3.6472, 5.308368, 6.869866, 8.337674], abs=1e-5)
    assert world.position[0] == pytest.approx((0.520862, 0), abs=1e-6)


def test_lateral_replaces_forward_and_takes_the_heading_before_the_turn():
    world = World((0, 0, 90))
    world.step(1, 1, 2)
    assert world.velocity[0] == pytest.approx((0, -0.564), abs=1e-6)
    assert world.yaw[0] == 92


def test_turning_past_the_back_wraps_the_yaw():
    world = World((0, 0, 179))
    world.step(0, 0, 2)
    assert world.yaw[0] == -179
    world.step(0, 0, 1)
    assert world.yaw[0] == 179


def test_coasting_agent_slows_by_drag_alone():
    world = World((0, 0, 90), agent_vel=(10, 0))
    speeds = []
    for _ in range(3):
        world.step()
        speeds.append(world.velocity[0, 0])
    assert speeds == pytest.approx([9.4, 8.836, 8.30584], abs=1e-5)


def test_constant_drive_ends_at_terminal_speed():
    world = World((0, 0, 90))
    for _ in range(300):
        world.step(*FORWARD)
        world.position[0] = 0
    assert world.velocity[0] == pytest.approx((31.3333, 0), abs=1e-3)
    for _ in range(300):
        world.step(0, 1, 0)
        world.position[0] = 0
    assert world.velocity[0] == pytest.approx((0, -9.4), abs=1e-3)


def test_ball_slows_by_drag_and_loses_displacement_to_the_floor():
    world = World(ball=(0, 0), ball_vel=(10, 0))
    world.step()
    assert world.position[BALL, 0] == pytest.approx(0.161232, abs=1e-6)
    world.step()
    world.step()
    assert world.velocity[BALL] == pytest.approx((9.41192, 0), abs=1e-5)


def test_slow_ball_loses_a_share_of_its_displacement():
    world = World(ball=(0, 0), ball_vel=(1, 0))
    world.step()
    assert world.position[BALL, 0] == pytest.approx(0.012074, abs=1e-6)


def test_head_on_hit_with_kick_follows_one_step_later():
    world = World((-1.135, 0, 90), agent_vel=(16.7, 0), ball=(0, 0))
    assert world.step(*FORWARD) == (1, 0)
    assert world.velocity[BALL] == pytest.approx((29.850, 0), abs=1e-3)
    assert world.velocity[0] == pytest.approx((15.787, 0), abs=1e-3)
    world.step(*FORWARD)
    assert world.velocity[BALL] == pytest.approx((42.320, 0), abs=2e-3)


def test_no_kick_without_forward_and_none_while_contact_lasts():
    world = World((-1.13, 0, 90), agent_vel=(1, 0), ball=(0, 0))
    assert world.step() == (1, -1)
    assert world.step(*FORWARD) == (0, -1)
    assert not world.push.any()


def test_lateral_drive_keeps_the_kick_of_the_forward_branch():
    world = World((0, 1.13, 90), ball=(0, 0))
    assert world.step(1, 1, 0) == (1, 0)
    assert np.hypot(*world.push) == pytest.approx(13.3333, abs=1e-3)


def test_kick_points_from_the_moved_agent_to_the_contact_point():
    # Agent passes at 45 degrees behind the ball, moving along +z at 10 m/s after drag.
    side = 1.13 / np.sqrt(2)
    for on_ball, reach in ((True, 1.13 - 0.6241719), (False, 0.5)):
        world = World((-side, -side, 0), agent_vel=(0, 10 / 0.94 - 2), ball=(0, 0))
        world.step(*FORWARD, on_ball=on_ball)
        point = np.array([-side, -side]) + reach / np.sqrt(2)
        direction = (point - world.position[0]) / np.hypot(*(point - world.position[0]))
        assert world.push == pytest.approx(13.33333 * direction, abs=1e-3)


def test_ball_touching_a_wall_bounces_with_sticking_friction():
    world = World(ball=(0, BALL_AT_WALL), ball_vel=(10 / 0.98, 10 / 0.98))
    world.step()
    assert world.velocity[BALL] == pytest.approx((7.143, -8), abs=2e-3)
    assert abs(world.spin[0]) == pytest.approx(11.44, abs=1e-2)
    world.velocity[BALL], world.position[BALL] = 0, 0
    world.step()
    assert abs(world.spin[0]) == 7


def test_sunken_ball_bounces_with_a_shorter_friction_arm():
    world = World(ball=(0, BALL_AT_WALL + 0.3), ball_vel=(10 / 0.98, 10 / 0.98))
    world.step()
    assert world.velocity[BALL] == pytest.approx((4.027, -8), abs=2e-3)


def test_grazing_bounce_is_limited_by_friction():
    # Normal impulse 5.4 per mass, so at most 0.6 * 5.4 = 3.24 along the wall; sticking would take 20 * 2/7 = 5.71.
    world = World(ball=(0, BALL_AT_WALL), ball_vel=(20 / 0.98, 3 / 0.98))
    world.step()
    assert world.velocity[BALL] == pytest.approx((20 - 3.24, -2.4), abs=2e-3)


def test_slow_ball_does_not_bounce():
    world = World(ball=(0, BALL_AT_WALL), ball_vel=(0, 1.5 / 0.98))
    world.step()
    assert world.velocity[BALL, 1] == pytest.approx(0, abs=1e-4)


def test_ball_sinks_into_the_wall_before_it_bounces():
    world = World(ball=(0, BALL_AT_WALL - 0.1), ball_vel=(0, 20 / 0.98))
    world.step()
    assert world.velocity[BALL, 1] == pytest.approx(20, abs=1e-4)
    assert world.position[BALL, 1] > BALL_AT_WALL + 0.2
    world.step()
    assert world.velocity[BALL, 1] == pytest.approx(-0.8 * 20 * 0.98, abs=1e-3)


def test_agent_running_into_a_wall_closes_the_gap_exactly_then_stops():
    world = World((0, 7.0, 0), agent_vel=(0, 20))
    world.step()
    assert world.velocity[0, 1] == pytest.approx(0.4036, abs=1e-4)
    assert world.position[0, 1] == pytest.approx(7.008072, abs=1e-5)
    world.step()
    assert world.velocity[0, 1] == pytest.approx(0, abs=1e-3)


def test_overlapping_agents_are_pushed_apart_without_gaining_speed():
    world = World((0, 0, 0))
    world.position[1] = (0.9, 0)
    world.step()
    # 0.8 of the depth 0.1, shared equally.
    assert world.position[1, 0] - world.position[0, 0] == pytest.approx(0.98, abs=1e-5)
    assert world.velocity[:2] == pytest.approx(np.zeros((2, 2)), abs=1e-5)


@pytest.mark.parametrize("angle", [90, 60, 30, -75, -90, 120])
def test_fastest_ball_cannot_leave_the_field(angle):
    heading = np.radians(angle)
    world = World(ball=(0, 0), ball_vel=(60 * np.sin(heading), 60 * np.cos(heading)))
    for _ in range(200):
        world.velocity[BALL] *= 60 / max(np.hypot(*world.velocity[BALL]), 1)
        world.step()
        assert abs(world.position[BALL, 1]) < 7.6 and abs(world.position[BALL, 0]) < 17.4


def test_fast_ball_stops_at_the_wall_and_is_reflected_without_friction():
    # 40 m/s: 0.8 m minus the floor's loss in one step, more than 0.75 (radius + half thickness) = 0.641 m.
    world = World(ball=(0, 6.5), ball_vel=(0, 40 / 0.98))
    world.step()
    assert world.position[BALL, 1] == pytest.approx(BALL_AT_WALL, abs=1e-4)
    assert world.velocity[BALL, 1] == pytest.approx(-32, abs=1e-3)
