"""Keys that mean nothing beside others of the file, or in its game, are told, and only these."""

from __future__ import annotations

import pytest

from palus.config import load_run, notes, preset_names
from palus.config.unread import KnownGame

NONE, ANY = frozenset[str](), frozenset({""})
HERE = KnownGame(False, ("random",), ANY, ANY)
WORKERS = KnownGame(True, ("random",), ANY, ANY)
UNRANKED = KnownGame(False, None, ANY, ANY)
RANKED_WITHOUT = KnownGame(False, (), ANY, ANY)
PLAIN = KnownGame(False, ("random",), NONE, frozenset({"B"}))


@pytest.mark.parametrize(
    ("behaviors", "palus", "game", "told"),
    [
        (
            "{A: {trainer_type: appo, hyperparameters: {target_kl: 0.1, min_learning_rate: 1e-7, vtrace_rho: 2}}}",
            "{}",
            HERE,
            {
                **dict.fromkeys(
                    [f"behaviors.A.hyperparameters.{key}" for key in ("target_kl", "min_learning_rate")],
                    "adaptive_learning_rate is off",
                ),
                "behaviors.A.hyperparameters.vtrace_rho": "advantages is gae",
            },
        ),
        (
            "{A: {trainer_type: appo, hyperparameters: {adaptive_learning_rate: epoch, target_kl: 0.1, "
            "advantages: vtrace, vtrace_c: 2, normalize_returns: false, learning_rate_schedule: linear}}}",
            "{}",
            HERE,
            {"behaviors.A.hyperparameters.learning_rate_schedule": "adaptive_learning_rate moves the rate"},
        ),
        (
            "{A: {trainer_type: sac, hyperparameters: {steps_per_update: 2, reward_signal_steps_per_update: 4}}}",
            "{}",
            HERE,
            {"behaviors.A.hyperparameters.reward_signal_steps_per_update": "the game's own reward learns nothing"},
        ),
        (
            "{A: {network_settings: {normalize_names: [x], image_layers: 0, image_units: 8, initial_deviation: 0.5, "
            "range_end: 2, squash: true}}}",
            "{}",
            HERE,
            {
                "behaviors.A.network_settings.range_end": "squash stretches to the range",
                "behaviors.A.network_settings.normalize_names": "normalize is off",
                "behaviors.A.network_settings.image_units": "image_layers is 0",
            },
        ),
        (
            "{A: {network_settings: {vis_encode_type: resnet, tanh_scale: 2}, reward_signals: {extrinsic: {}, "
            "rnd: {network_settings: {vis_encode_type: resnet}}}}, B: {network_settings: {squash: true}}}",
            "{}",
            PLAIN,
            {
                "behaviors.A.network_settings.vis_encode_type": "the agents see no images",
                "behaviors.A.reward_signals.rnd.network_settings.vis_encode_type": "the agents see no images",
                "behaviors.A.network_settings.tanh_scale": "the agents have no continuous actions",
            },
        ),
        (
            "{A: {self_play: {team_change: 7}}}",
            "{league: {learn: all_teams}}",
            HERE,
            {"behaviors.A.self_play.team_change": "palus.league.learn is all_teams"},
        ),
        (
            "{A: {time_horizon: 7}}",
            "{num_matches: 4}",
            HERE,
            {"behaviors.A.time_horizon": "palus.num_matches and buffer_size say how long rollouts are"},
        ),
        ("{A: {time_horizon: 7}}", "{}", HERE, {}),
        ("{A: {trainer_type: sac, time_horizon: 7}}", "{num_matches: 4}", HERE, {}),
        (
            "{A: {time_horizon: 7, network_settings: {memory: {sequence_length: null}}, "
            "behavioral_cloning: {demo_path: x}}}",
            "{num_matches: 4}",
            HERE,
            {},
        ),
        (
            "{A: {time_horizon: 7}}",
            "{num_matches: 4}",
            WORKERS,
            {"palus.num_matches": "in worker processes buffer_size and time_horizon of A say how many"},
        ),
        ("{A: {trainer_type: sac}}", "{num_matches: 4}", WORKERS, {}),
        (
            "{A: {}, B: {time_horizon: 7, hyperparameters: {buffer_size: 2048}}, "
            "C: {trainer_type: sac, time_horizon: 7, hyperparameters: {buffer_size: 2048}}}",
            "{}",
            WORKERS,
            dict.fromkeys(
                ["behaviors.B.hyperparameters.buffer_size", "behaviors.B.time_horizon", "behaviors.C.time_horizon"],
                "all rollouts are as long as A asks for",
            ),
        ),
        (
            "{A: {}}",
            "{sampling: {workers: 0, splits: 3, affinity: false, decorrelate: false, asynchronous: true}}",
            WORKERS,
            {
                "palus.sampling.splits": "palus.sampling.workers is 0",
                "palus.sampling.affinity": "palus.sampling.workers is 0",
            },
        ),
        (
            "{A: {}}",
            "{sampling: {asynchronous: true, workers: 0, splits: 3}}",
            HERE,
            dict.fromkeys(
                [f"palus.sampling.{key}" for key in ("workers", "splits", "asynchronous")],
                "it is about worker processes; this game is stepped without",
            ),
        ),
        (
            "{A: {}}",
            "{baselines: [random], baseline_interval: 9, baseline_pairs: 3}",
            UNRANKED,
            dict.fromkeys(
                [f"palus.{key}" for key in ("baselines", "baseline_interval", "baseline_pairs")],
                "no arena ranks G, so it has no baselines to meet",
            ),
        ),
        (
            "{A: {}}",
            "{baselines: [random], baseline_interval: 0, baseline_pairs: 3}",
            HERE,
            dict.fromkeys(["palus.baselines", "palus.baseline_pairs"], "palus.baseline_interval is 0"),
        ),
        ("{A: {}}", "{baselines: [], baseline_pairs: 3}", HERE, {"palus.baseline_pairs": "palus.baselines is empty"}),
        (
            "{A: {}}",
            "{baseline_interval: 9}",
            RANKED_WITHOUT,
            {"palus.baseline_interval": "G declares no baselines; name some"},
        ),
        ("{A: {}}", "{baselines: [random], baseline_interval: 9, baseline_pairs: 3}", RANKED_WITHOUT, {}),
        ("{A: {}}", "{baseline_interval: 9, baseline_pairs: 3}", HERE, {}),
    ],
)
def test_a_key_without_effect_is_told_with_the_reason(
    behaviors: str, palus: str, game: KnownGame, told: dict[str, str], load
) -> None:
    run = load(f"{{default_settings: {{trainer_type: ppo}}, behaviors: {behaviors}, palus: {palus}}}", ["palus.env=G"])
    lines = (line.partition(" has no effect; ") for line in notes(run, game))
    assert {path: why for path, found, why in lines if found} == told


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_sets_no_key_in_vain(name: str) -> None:
    """But for the lengths of a second behavior's rollouts, which executables of Unity go by."""
    told = [line for line in notes(load_run(name)) if "no effect" in line]
    assert [line for line in told if not line.endswith("all rollouts are as long as Goalie asks for")] == []
