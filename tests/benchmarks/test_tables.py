"""Tables are functions of stored results, and both sides of a comparison are configured alike."""

import json
from pathlib import Path

import pytest

import device
import learning_curves
import strength
import throughput_table
from learning_curves import Checkpoint, checkpoints, thinned
from palus.config import load_run

STOCK = Path(throughput_table.__file__).parent / "peer" / "stock.yaml"

MACHINE = {
    "recipe": "throughput",
    "arguments": {},
    "machine": {
        "cpu": "Some CPU", "cpu_flags": ["avx2"], "cores": 2, "commit": "abc", "versions": {"python": "3.11.9"},
    },
    "started": "2026-01-02T03:04:05+00:00",
    "wall_s": 120.0,
    "load_average": {"before": [0.5, 0, 0], "after": [1.5, 0, 0]},
}  # fmt: skip


def cycle(cpu_s, wall_s):
    return {
        "trained_agent_steps": 20000, "env_agent_steps": 40000, "wall_s": wall_s, "cpu_s": cpu_s, "collect_cpu_s": 0.5,
        "learn_cpu_s": 1.5, "simulation_cpu_s": 0.01 * cpu_s, "collect_flop": 30e9, "update_flop": 180e9,
        "gemm_gflops": 150.0,
    }  # fmt: skip


def measurement(threads, *cycles):
    return {
        "trainer": "ppo", "path": "highest", "threads": threads, "gradient_error": 0.0, "matches": 128, "decisions": 80,
        "opponents": 11, "load": [0.5, 1.5], "cycles": list(cycles),
    }  # fmt: skip


def report():
    seconds = {"imported": 1.0, "first_decision": 2.0, "first_gradient_step": 2.5, "first_update": 4.0}
    extras = {"max_steps": 5_000_000, "evaluation_s": 6.0, "evaluations": 10, "checkpoint_s": 0.6, "checkpoints": 10}
    return MACHINE | {
        "paths": [{"name": "highest", "gflops": 150.0, "error": 3e-7, "fp32": True}],
        "auto": "highest",
        "one_thread": [measurement(1, cycle(2.0, 2.5), cycle(2.5, 3.0)), measurement(1, cycle(1.6, 2.0))],
        "ml_agents": [{"trainer": "ppo", "cycles": [cycle(20.0, 25.0), cycle(16.0, 20.0), cycle(25.0, 30.0)]}],
        "two_cores": [measurement(1, cycle(2.0, 2.0)), measurement(2, cycle(2.1, 1.25))],
        "starts": [{"trainer": "ppo", "caches": "warm", "threads": 2, "seconds": seconds}],
        "extras": [{"trainer": "ppo", **extras}],
    }


def test_rates_are_medians_over_all_cycles_and_the_ratio_is_of_medians():
    rows = throughput_table.cpu_table(report()).splitlines()
    # 20000 steps in 2.0 s; 180 GFLOP in 1.5 s at 150 GFLOP/s; 210 GFLOP in 2 s.
    assert rows[2] == "| palus, PPO, highest, fp32 | 10,000 | 12,500 | 10.0 x | 150 | 80% | 70% | 1.0% | 0e+00 |"
    assert rows[3] == "| ML-Agents 1.1.0, PPO, fp32, game free of cost | 1,000 | 1,250 | 1.0 x |  |  |  |  |  |"


def test_two_cores_are_compared_by_wall_time():
    assert throughput_table.wall_table(report()).splitlines()[2] == (
        "| PPO, highest, fp32 | 10,000 | 16,000 | 1.60 | 0.5 to 1.5 |"
    )


def test_a_whole_run_includes_its_start_checkpoints_and_evaluations():
    # 2 s + 5,000,000 / 16,000 s + 10 x 0.6 s + 10 x 6 s
    stored = json.loads(json.dumps(report()))
    assert throughput_table.whole_run_minutes(stored, stored["extras"][0]) == ((2 + 312.5 + 66) / 60, 16000)
    assert "**6.3 minutes**" in throughput_table.markdown(stored)


def test_without_the_peer_there_is_no_ratio():
    alone = report() | {"ml_agents": []}
    assert (
        throughput_table.cpu_table(alone)
        .splitlines()[2]
        .startswith("| palus, PPO, highest, fp32 | 10,000 | 12,500 |  |")
    )


def test_the_strength_table_puts_the_hardest_opponent_first():
    def row(seed, opponent, score):
        return {
            "seed": seed,
            "opponent": opponent,
            "score": score,
            "interval": [score - 0.04, score + 0.03],
            "pairs": 200,
        }

    trained = [{"commit": "abc", "cpu": "Some CPU"}, {"commit": "def", "cpu": "Some CPU"}]
    team = {"trainer_type": "ppo", "steps": 20_000_000, "wall_seconds": 1200.0, "trained": trained}
    text = strength.strength_markdown(
        MACHINE
        | {
            "teams": [{"seed": 1, "name": "a-seed1", **team}, {"seed": 2, "name": "a-seed2", **team}],
            "opponents": [{"name": "random"}, {"name": "official"}],
            "skipped": [],
            "matches": [
                row(1, "random", 0.96),
                row(1, "official", 0.6),
                row(2, "random", 0.94),
                row(2, "official", 0.64),
            ],
        }
    )
    assert "20.0M steps in 20.0 minutes, trained at commit abc on Some CPU, then def on Some CPU" in text
    assert text.splitlines()[-2:] == [
        "| official | 60.0 (56 to 63) | 64.0 (60 to 67) | **62.0** |",
        "| random | 96.0 (92 to 99) | 94.0 (90 to 97) | **95.0** |",
    ]


def test_pauses_of_a_resumed_run_are_not_training_time(tmp_path):
    folder = tmp_path / "SoccerTwos"
    folder.mkdir()
    for start in (1000, 5000):
        (folder / f"events.out.tfevents.{start}.host").touch()
    times = {10: 1100.0, 20: 1200.0, 30: 5050.0}
    for steps in (10, 20, 30):
        (folder / f"SoccerTwos-{steps}.onnx").touch()
    entries = [{"steps": s, "file_path": f"/gone/SoccerTwos-{s}.onnx", "creation_time": t} for s, t in times.items()]
    (tmp_path / "run_logs").mkdir()
    (tmp_path / "run_logs" / "training_status.json").write_text(json.dumps({"SoccerTwos": {"checkpoints": entries}}))
    assert [(c.steps, c.wall_s) for c in checkpoints(tmp_path, "SoccerTwos")] == [(10, 100), (20, 200), (30, 250)]


def test_thinning_keeps_the_last_checkpoint(tmp_path):
    found = [Checkpoint(tmp_path, steps, 0.0) for steps in range(1, 11)]
    assert [c.steps for c in thinned(found, 3)] == [3, 6, 10]
    assert thinned(found, 20) == found


def test_learning_curves_are_drawn(tmp_path):
    points = [
        {"seed": seed, "steps": steps, "wall_s": 60.0 * steps, "opponent": name, "score": 0.5, "interval": [0.4, 0.6]}
        for seed in (1, 2)
        for steps in (1, 2)
        for name in ("official", "ball-chaser")
    ]
    learning_curves.draw({"points": points}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("trainer", "preset"), [("poca", "soccertwos"), ("ppo", "soccertwos-ppo")])
def test_the_peer_is_measured_with_the_values_of_the_presets(trainer, preset):
    peer = load_run(STOCK, [f"behaviors.SoccerTwos.trainer_type={trainer}"]).behaviors["SoccerTwos"]
    ours = load_run(preset).behaviors["SoccerTwos"]
    assert ours.model_copy(update={"max_steps": peer.max_steps}) == peer


def test_a_device_that_is_not_there_is_told_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["device.py", "--device", "cuda:99"])
    with pytest.raises(SystemExit):
        device.main()
    assert "error: torch_settings.device cuda:99: " in capsys.readouterr().err


def test_rates_on_a_device_stand_beside_what_they_are_meant_to_reach():
    graph = {
        "what": "ppo",
        "matches": 128,
        "step": "one graph",
        "matmul": "medium",
        "per_s": 412345,
        "playing_share": 0.6,
    }
    runs = [graph, graph | {"what": "poca", "per_s": 9}, {"what": device.DOOM, "matches": 256, "step": "x", "per_s": 5}]
    rows = device.markdown(MACHINE | {"device": "Some GPU", "runs": runs}).splitlines()[-3:]
    assert rows == [
        "| ppo | 128 | one graph | medium | 412,345 | 400,000 (reached) | 60% |",
        "| poca | 128 | one graph | medium | 9 | - | 60% |",
        "| health_gathering_supreme | 256 | x | - | 5 | 100,000 (not reached) | - |",
    ]
