"""StrikersVsGoalie where it differs from SoccerTwos: values worked out by hand, and policies that Unity trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scenes import set_scene

from palus import envs
from palus.arena.models.players import load_player
from palus.arena.referee.games import source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import decode_replay, encode_replay
from palus.envs.check import check_env
from palus.envs.protocol import observe_slots
from palus.envs.soccer.bots import act_ball_chaser, act_goalie_striker
from palus.envs.soccer.env import StrikersVsGoalie
from palus.envs.soccer.play_stats import play_statistics

MODELS = Path(__file__).parents[4] / "shared/models/soccertwos"  # beside the checkout
BALL, STRIKER_GOAL, STRIKER_WALL, MATE, GOALIE = range(5)
GOALIE_GOAL, GOALIE_WALL, STRIKER = range(1, 4)


def scene(agents=((0, 0, 90), (-5, 5, 90), (8, -3, -90)), ball=(5.0, 0.0), **options):
    env = StrikersVsGoalie(1, kick_point="ball", record=True)
    env.reset(np.array([1]))
    set_scene(env, 0, agents, ball, **options)
    return env


def act(env, a=(0, 0, 0), b=(0, 0, 0), goalie=(0, 0, 0)):
    return env.step([np.array([[a, b]]), np.array([[goalie]])])


def newest_rays(env, agent):
    """(one-hot slots, nothing hit, fraction) of each ray of the newest frame."""
    behavior = env.spec.behaviors[agent // 2]
    number = [[agent == 0, agent == 1], [True]][agent // 2]
    seen, _ = observe_slots(env, behavior, np.array([number]))
    tags = 5 if agent < 2 else 4
    frames = [out[0].reshape(3, -1, tags + 2)[-1] for out in seen.values()]
    return [(row[:tags].tolist(), row[tags], float(row[-1])) for row in np.concatenate(frames)]


def slots(rays):
    return [row.index(1.0) if 1.0 in row else None for row, _, _ in rays]


def test_two_strikers_and_a_goalie_see_what_their_sensors_say():
    spec = envs.make("StrikersVsGoalie", 1).spec
    assert [(b.name, b.observation_sizes, b.branches) for b in spec.behaviors] == [
        ("Striker", (231, 63), (3, 3, 3)),
        ("Goalie", (738,), (3, 3, 3)),
    ]
    assert [(a.name, a.team, a.behavior) for a in spec.agents] == [
        ("striker A", 0, "Striker"),
        ("striker B", 0, "Striker"),
        ("goalie", 1, "Goalie"),
    ]
    assert spec.max_decisions == 1000


def test_it_keeps_the_contract_of_environments():
    check_env(StrikersVsGoalie(3, max_steps=100), make=lambda n: StrikersVsGoalie(n, max_steps=100, threads=2))


def test_start_positions_cover_their_ranges():
    env = StrikersVsGoalie(4000)
    env.reset(np.arange(4000))
    assert np.allclose(env.agent_pos[:, :, 1], [1.2, -1.2, 0.0])
    for agent, low, high in ((0, -13.19, -3.19), (1, -13.19, -3.19), (2, 4.0, 14.0)):
        x = env.agent_pos[:, agent, 0]
        assert low <= x.min() < low + 0.1 and high - 0.1 < x.max() <= high
    assert env.agent_yaw[:, :2].min() >= 80 and env.agent_yaw[:, 2].max() <= -80


def test_a_striker_sees_five_tags_and_the_blocker_as_a_wall():
    rays = newest_rays(scene(), 0)
    assert slots(rays)[:5] == [BALL, STRIKER_GOAL, STRIKER_GOAL, GOALIE, STRIKER_WALL]
    assert slots(rays)[11:] == [STRIKER_WALL, MATE, STRIKER_WALL]
    seen = [fraction for _, _, fraction in rays]
    assert seen[:5] == pytest.approx([0.19966, 0.86163, 0.86163, 0.39155, 0.75400], abs=1e-5)
    assert seen[11:13] == pytest.approx([(15.01 - 0.5) / 20, 0.31025], abs=1e-5)


def test_a_striker_does_not_know_the_goal_behind_the_blocker():
    row, nothing, fraction = newest_rays(scene([(-14.6, 0, -90), (-5, 5, 90), (8, -3, -90)]), 0)[0]
    assert row == [0] * 5 and nothing == 0  # overlapping the blocker, it sees through it: a hit, and no tag
    assert fraction == pytest.approx((17.372623 - 0.5 - 14.6) / 20, abs=1e-5)


def test_a_goalie_sees_forty_one_rays_all_around_the_last_two_backward():
    turn = np.radians(27)
    striker = (8 - 6 * np.cos(turn), 6 * np.sin(turn), 90)  # to its right, which is +z: the third ray on that side
    rays = newest_rays(scene([striker, (-12, -6, 90), (8, 0, -90)], (5, 0)), 2)
    assert len(rays) == 41
    assert [slots(rays)[i] for i in (0, 5, 19, 20, 39, 40)] == [BALL, STRIKER, *[GOALIE_WALL] * 2, *[GOALIE_GOAL] * 2]
    seen = [fraction for _, _, fraction in rays]
    assert [seen[0], seen[5]] == pytest.approx([(3 - 1.0068554) / 20, (6 - 0.8660254) / 20], abs=1e-5)
    # to its right and left the side walls; behind it, twice, the back of its net
    assert seen[19:21] == pytest.approx([7.008072 / 20] * 2, abs=1e-5)
    assert seen[39:] == pytest.approx([(17.356 - 0.5 - 8) / 20] * 2, abs=1e-5)


def test_roles_move_at_their_own_speeds():
    env = scene([(0, -5, 90), (-5, 5, 90), (8, 0, -90)], (5, 5))
    act(env, a=(1, 0, 0), b=(0, 1, 0), goalie=(0, 1, 0))
    one_step = sum(0.94**i for i in range(1, 6))
    ahead, aside, across = (2 * share * one_step for share in (1.3, 0.3, 1.0))
    assert env.agent_vel[0] == pytest.approx(np.array([[ahead, 0], [0, -aside], [0, across]]), abs=1e-4)


@pytest.mark.parametrize(("agent", "kicks"), [(0, False), (2, True)])
def test_only_a_goalie_kicks_without_driving_forward(agent, kicks):
    agents = [(-12, 6, 90), (-12, -6, 90), (12, 6, -90)]
    agents[agent] = (-1.3, 0, 90)
    moving = [(10.0 * (a == agent), 0.0) for a in range(3)]
    env = scene(agents, (0, 0), agent_vel=moving)
    act(env)
    assert (agent in env.kick[0].tolist()) == kicks


def test_time_costs_strikers_and_pays_the_goalie():
    env = scene()
    assert act(env).reward[0] == pytest.approx([-0.001, -0.001, 0.001])
    env = StrikersVsGoalie(1, max_steps=333)
    env.reset(np.array([2]))
    set_scene(env, 0, [(-12, 6, 90), (-12, -6, 90), (12, 6, 90)], (0, 0))
    total = np.zeros(3)
    while not (step := act(env)).match_over[0]:
        total += step.reward[0]
    assert total + step.reward[0] == pytest.approx([-1, -1, 1], abs=1e-5)
    assert step.truncated.all() and not step.group_reward.any()
    assert step.points[0].tolist() == [0.0, 1.0], "who cannot score has won when time is up"


def test_a_goal_pays_both_strikers_and_costs_the_goalie():
    env = scene(ball=(15.13, 0), time=1199)
    step = act(env)
    assert step.group_reward[0] == pytest.approx([0.76, 0.76, -1.0], abs=1e-6)
    assert step.terminated[0].all() and env.winner[0] == 0 and step.points[0].tolist() == [1.0, 0.0]


def test_nobody_scores_in_the_blocked_goal():
    env = scene([(0, 5, 90), (-5, 5, 90), (8, -3, -90)], (-13.0, 0), ball_vel=(-60.0, 0))
    furthest = 0.0
    for _ in range(10):
        assert not act(env).match_over[0]
        furthest = min(furthest, *env.trace[0, :, 9].tolist())
    assert -15.01 < furthest < -13.5 and env.ball_vel[0, 0] > 0
    assert not act(scene(ball=(-15.2, 0))).match_over[0]  # not even where the ball is over the line


def test_bodies_stay_inside_whatever_they_do():
    env = StrikersVsGoalie(64)
    env.reset(np.arange(64))
    rng = np.random.default_rng(1)
    for t in range(300):
        if t % 5 == 0:
            held = [rng.integers(0, 3, (64, agents, 3)) * [0, 0, 1] + [1, 0, 0] for agents in (2, 1)]
        env.step(held)
        for position in (env.agent_pos, env.ball_pos):
            assert np.abs(position[..., 1]).max() < 7.6
            assert position[..., 0].min() > -15.6 and position[..., 0].max() < 17.4


def unity(behavior):
    """(env, behavior spec) -> what the policy that Unity trained does in all matches of an environment."""
    ort = pytest.importorskip("onnxruntime")
    file = MODELS / f"unity-official-{behavior.lower()}.onnx"
    if not file.exists():
        pytest.skip(f"needs {file.name}, of the policies that Unity trained, in ../shared/models/soccertwos")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(file), options)

    def choose(env, spec):
        agents = sum(agent.behavior == spec.name for agent in env.spec.agents)
        seen, _ = observe_slots(env, spec, np.ones((env.num_matches, agents), np.bool_))
        allowed = np.ones((env.num_matches * agents, 9), np.float32)
        (chosen,) = session.run(["discrete_actions"], {**seen, "action_masks": allowed})
        return chosen.reshape(env.num_matches, agents, 3)

    return choose


def at_random(seed):
    rng = np.random.default_rng(seed)
    return lambda env, spec: rng.integers(
        0, 3, (env.num_matches, sum(a.behavior == spec.name for a in env.spec.agents), 3)
    )


def play(strikers, goalie, matches, **options):
    """Goals, and mean fixed steps, of one match in each slot."""
    env = StrikersVsGoalie(matches, **options)
    env.reset(np.arange(matches))
    steps, goals, playing = np.zeros(matches), np.zeros(matches, bool), np.ones(matches, bool)
    while playing.any():
        before = env.time.copy()
        over = env.step([strikers(env, env.spec.behaviors[0]), goalie(env, env.spec.behaviors[1])]).match_over & playing
        steps[over] = (before + env.trace_length)[over]
        goals |= over & (env.winner == 0)
        playing &= ~over
    return int(goals.sum()), float(steps.mean())


def test_strikers_that_unity_trained_play_it():
    """The mean has a long tail (126 to 251 steps for six goalies at random), and sums differ between processors."""
    goals, steps = play(unity("Striker"), at_random(0), 48)
    assert goals == 48 and 80 < steps < 450


@pytest.mark.slow
def test_both_sides_that_unity_trained_play_it_as_in_the_specification():
    """96 matches of each: there 96 goals in 126 steps, 10 goals, 35 goals, 95 goals in 667 steps."""
    goals, steps = play(unity("Striker"), at_random(0), 96)
    assert goals == 96 and 126 * 0.75 < steps < 126 * 2
    held, _ = play(at_random(0), unity("Goalie"), 96)
    free, _ = play(at_random(1), at_random(2), 96)
    assert held <= 28 and 22 <= free <= 55 and held < 0.7 * free
    goals, steps = play(unity("Striker"), unity("Goalie"), 96)
    assert goals >= 90 and 667 * 0.75 < steps < 667 * 1.4


def test_house_bots_play_both_sides_each_team_in_its_own_role():
    def bot(act, team):
        return lambda env, spec: act(env, team, np.arange(env.num_matches))

    striking, keeping = bot(act_goalie_striker, 0), bot(act_goalie_striker, 1)
    scored, steps = play(striking, at_random(1), 64, max_steps=1000)
    assert scored >= 60
    held, longer = play(striking, keeping, 64, max_steps=1000)
    assert held < scored and longer > 1.5 * steps
    assert play(bot(act_ball_chaser, 0), keeping, 64, max_steps=1000)[0] < 0.5 * held


def test_an_arena_plays_mirrored_pairs_in_which_each_player_strikes_once_and_keeps_once():
    spec = source_of("StrikersVsGoalie").spec
    strong, weak = (load_player(name, spec) for name in ("goalie-striker", "random"))
    recorder = Recorder([0])
    results = play_pairs(strong, weak, 12, 5, env_id="StrikersVsGoalie", recorder=recorder)
    assert [result.leg for result in results[:2]] == [1, 2] and max(r.duration_ticks for r in results) <= 1000
    striking, keeping = ([r.score for r in results if r.leg == leg] for leg in (1, 2))
    assert sum(blue for blue, _ in striking) >= 10 > sum(blue for blue, _ in keeping)
    assert {(r.result, r.cause, r.score) for r in results} == {("win1", "goal", (1, 0)), ("win2", "time_limit", (0, 1))}
    assert all((r.cause == "time_limit") == (r.duration_ticks == 999) == (not r.events) for r in results)
    recording = recorder.recordings[0]
    assert recording.frames.shape == (results[0].duration_ticks + 1, 11) and recording.actions.shape[1:] == (3, 3)
    shown = decode_replay(encode_replay([recording])).recordings[0]
    assert np.abs(shown.frames - recording.frames).max() < 0.06
    assert play_statistics(recording)["distance_m"][0] > play_statistics(recording)["distance_m"][1]
