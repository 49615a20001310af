"""Runs on torch's path: what they write is what a run on the CPU writes, and either goes on with the other's.

It computes where PALUS_TEST_DEVICE says (`places`), by default on the CPU.
"""

from contextlib import closing
from functools import partial

import numpy as np
import onnxruntime
import pytest
import torch
from places import HERE

from palus.config import load_run
from palus.envs import GameSource, make
from palus.envs.protocol import room_for
from palus.export.policy_file import PolicyFile, read_policy, write_policy
from palus.nn.distributions import likeliest, sample_side_by_side
from palus.nn.network import Network
from palus.nn.place import CPU
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, Seat
from palus.train import Run, train

FAST = ["palus.matmul=highest", "palus.threads=1", "env_settings.seed=7", "palus.baseline_interval=0"]
SETTINGS = ["network_settings.normalize=true", "max_steps=4096", "self_play.save_steps=1024"]


def elsewhere(monkeypatch):
    """From now on torch's path computes."""
    monkeypatch.setattr("palus.run.parts.place_of", lambda setting: HERE)


@pytest.mark.parametrize(("trainer", "first_here"), [("ppo", True), ("poca", False), ("sac", True)])
def test_a_run_goes_on_on_another_device(tmp_path, monkeypatch, trainer, first_here):
    more = [
        f"trainer_type={trainer}",
        *SETTINGS,
        *(["hyperparameters.steps_per_update=200"] if trainer == "sac" else []),
    ]
    settings = [f"behaviors.SoccerTwos.{setting}" for setting in more]
    run = load_run("debug", [*FAST, *settings, f"checkpoint_settings.results_dir={tmp_path}"])
    with monkeypatch.context() as patched:
        if not first_here:
            elsewhere(patched)
        parts = Run(run)
        with parts.report:
            parts.iterate()
            parts.save()
        parts.close()
        began = parts.trainees[0].learner
        assert began.place.compiled == first_here
    if first_here:
        elsewhere(monkeypatch)
    with closing(Run(run, resume=True)) as parts:
        again = parts.trainees[0].learner
    assert again.place.compiled != first_here
    for name, array in began.network.arrays().items():
        np.testing.assert_array_equal(again.network.arrays()[name], array)
    np.testing.assert_array_equal(*(own.optimizer.state_dict()["mean"] for own in (again, began)))
    result = train(run, resume=True)
    assert result.finished
    folder = tmp_path / "debug" / "SoccerTwos"
    file = read_policy(folder / "policy.npz")
    session = onnxruntime.InferenceSession(file.model)
    given = {seen.name: np.ones((2, seen.shape[-1]), np.float32) for seen in session.get_inputs()}
    assert all(np.isfinite(found).all() for found in session.run(None, given))


SHORT = ["max_steps=4096", "self_play.save_steps=1024", "self_play.swap_steps=1024", "network_settings.hidden_units=16"]
STOCK = [f"behaviors.SoccerTwos.{setting}" for setting in SHORT]
MEMORY = "behaviors.SoccerTwos.network_settings.memory={memory_size: 16, sequence_length: 8}"
SIGNALS = [f"behaviors.SoccerTwos.reward_signals.{name}={{strength: 0.1}}" for name in ("curiosity", "rnd")]
DOOM = ["behaviors.doom_basic.max_steps=4000", "palus.sampling.workers=1"]
STRIKERS = ["behaviors.Striker.max_steps=4096", "behaviors.Goalie.max_steps=4096"]
RUNS = {
    "bf16": ("debug", [*STOCK, "palus.matmul=bf16"]),
    "chosen path": ("debug", [*STOCK, "palus.matmul=auto", "behaviors.SoccerTwos.trainer_type=ppo"]),
    "mirrored": ("debug", [*STOCK, "behaviors.SoccerTwos.network_settings.symmetric=true"]),
    "memory": ("debug", [*STOCK, MEMORY]),
    "rewards": ("debug", [*STOCK, "behaviors.SoccerTwos.trainer_type=ppo", *SIGNALS]),
    "appo": ("debug", [*STOCK, "behaviors.SoccerTwos.trainer_type=appo"]),
    "population": ("debug", [*STOCK, "behaviors.SoccerTwos.population={size: 2, period: 1024, start: 0}"]),
    "strangers": ("debug", [*STOCK, "palus.league.opponents=members", "palus.league.members=[a.onnx, a.npz, random]"]),
    "two behaviors": ("strikers-vs-goalie-fast", [*STRIKERS, "palus.league.learn=all_teams"]),
    "exploiters": ("strikers-vs-goalie-fast", [*STRIKERS, "palus.league.roles={main_exploiter: 1}"]),
    "pictures": ("doom-basic", DOOM),
    "asynchronous": ("doom-basic", [*DOOM, "palus.sampling.asynchronous=true"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_ends_and_goes_on(tmp_path, monkeypatch, name):
    preset, settings = RUNS[name]
    if preset.startswith("doom"):
        pytest.importorskip("vizdoom")
    elsewhere(monkeypatch)
    monkeypatch.chdir(tmp_path)
    game, file = make("SoccerTwos", 1).spec, load_run("debug", STOCK).behaviors["SoccerTwos"]
    stranger = Network(game.behaviors[0], file.network_settings, torch.Generator(), critic="none")
    (tmp_path / "a.onnx").write_bytes(stranger.onnx().SerializeToString())
    write_policy(tmp_path / "a.npz", PolicyFile.of(stranger, game, "SoccerTwos", 1))
    run = load_run(preset, [*FAST, *settings, f"checkpoint_settings.results_dir={tmp_path}"])
    assert train(run).finished and train(run, resume=True).finished


def test_rays_travel_in_compact_form_and_mean_the_same(tmp_path, monkeypatch):
    elsewhere(monkeypatch)
    found = []
    for number, compact in enumerate((True, False)):
        monkeypatch.setattr("palus.learn.learner.Learner.takes_rays", property(lambda learner, own=compact: own))
        run = load_run("debug", [*FAST, "behaviors.SoccerTwos.trainer_type=poca",
                                 f"checkpoint_settings.results_dir={tmp_path / str(number)}"])  # fmt: skip
        parts = Run(run)
        rollouts = [parts.collector.collect().rollouts[0]]
        names = {name: (array.dtype, array.shape[2]) for name, array in rollouts[0].observations.items()}
        with parts.report:
            parts.iterate()
        found.append(parts.trainees[0].learner.network.weights.master.clone())
        parts.close()
        whole = {"obs_0": (np.float32, 264), "obs_1": (np.float32, 72)}
        kinds = {" tags": np.uint8, " distances": np.float32}
        rays = {"obs_0": 33, "obs_1": 9}
        short = {name + end: (kind, rays[name]) for name in rays for end, kind in kinds.items()}
        assert names == (short if compact else whole)
    assert torch.equal(*found)


@pytest.mark.parametrize("trainer", ["ppo", "poca"])
def test_the_cpu_learns_from_rays_in_compact_form_what_it_learns_from_whole_ones(tmp_path, monkeypatch, trainer):
    weights, seen = [], []
    settings = [f"behaviors.SoccerTwos.{setting}" for setting in (f"trainer_type={trainer}", *SETTINGS[1:])]
    for number in range(2):
        if number:
            monkeypatch.setattr("palus.learn.learner.Learner.takes_rays", property(lambda learner: False))
        run = load_run("debug", [*FAST, *settings, f"checkpoint_settings.results_dir={tmp_path / str(number)}"])
        parts = Run(run)
        with parts.report:
            parts.iterate()
            parts.iterate()
        weights.append(parts.trainees[0].learner.network.weights.master.clone())
        seen.append(sorted(parts.collector.collect().rollouts[0].observations))
        parts.close()
    assert seen == [[f"obs_{k} {part}" for k in (0, 1) for part in ("distances", "tags")], ["obs_0", "obs_1"]]
    assert float((weights[0] - weights[1]).norm() / weights[1].norm()) < 1e-3


@pytest.mark.parametrize(
    "more", ["network_settings.normalize=true", "reward_signals.curiosity={gamma: 0.9, strength: 0.1}"]
)
def test_rays_stay_whole_where_somebody_else_reads_them(tmp_path, more):
    settings = [f"behaviors.SoccerTwos.{more}", f"checkpoint_settings.results_dir={tmp_path}"]
    parts = Run(load_run("debug", [*FAST, *settings]))
    with parts.report:
        parts.iterate()
    assert sorted(parts.collector.collect().rollouts[0].observations) == ["obs_0", "obs_1"]
    parts.close()


@pytest.mark.parametrize(("deterministic", "draw"), [("false", sample_side_by_side), ("true", likeliest)])
def test_actions_are_drawn_by_threads_that_spin_unless_nothing_is_drawn(tmp_path, monkeypatch, deterministic, draw):
    elsewhere(monkeypatch)
    monkeypatch.setattr("palus.rollout.making.spinners", lambda threads: 2)
    monkeypatch.setattr("palus.rollout.making.take_threads", lambda count: None)
    key = f"behaviors.SoccerTwos.network_settings.deterministic={deterministic}"
    parts = Run(load_run("debug", [*FAST, key, f"checkpoint_settings.results_dir={tmp_path}"]))
    assert {own._draw for own in (*parts.collector._others, *parts.collector._learning.values())} == {draw}
    parts.close()


def test_opponents_that_act_together_do_what_they_do_alone(monkeypatch):
    """A learner, ten snapshots in blocks of other sizes, one of another kind, and the learner's present self."""
    monkeypatch.setattr("palus.nn.captured.PAYS", 1)
    source, file = GameSource("SoccerTwos"), load_run("debug", FAST).behaviors["SoccerTwos"]
    (spec,) = source.spec.behaviors
    other = file.network_settings.model_copy(update={"hidden_units": 16})
    met = [0, *(FROZEN + k for k in (0, 1, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 2, 4))]

    def played(place, rays):
        def network(number):
            settings = other if number == FROZEN + 10 else file.network_settings
            return Network(spec, settings, torch.Generator().manual_seed(number), critic="none", place=place)

        def seats(match):
            meets = met[match] if match < len(met) else 0
            return tuple(Seat(0, True) if agent.team == 0 else Seat(meets, False) for agent in source.spec.agents)

        env = source.batch(56, 4, spinning=not place.compiled)
        room = partial(room_for, rays=rays, zeros=place.zeros)
        learners = {0: (spec.name, network(0))}
        collector = InProcessCollector(env, learners, seats, 8, 3, {0: 2}, network, 2, room=room, place=place)
        try:
            collector.collect()
            return collector.collect().rollouts[0].parameters.copy(), env.get_state()
        finally:
            collector.close()

    expected, wanted = played(CPU, rays=False)
    for numbers, state in (played(HERE, rays=True), played(CPU, rays=True)):
        np.testing.assert_allclose(numbers, expected, atol=1e-4)
        for name, array in wanted.items():
            np.testing.assert_array_equal(state[name], array, err_msg=name)
