"""What only the game can say about a run file, whatever steps it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from countdown import CountdownOfTwo

from palus.config import load_run, notes
from palus.config.trainer import PpoBehavior
from palus.envs import GameSource
from palus.rollout.making import demands_of
from palus.run.misfits import _of_normalized, known_game, misfits
from palus.train import Run
from palus.trust import Trust
from palus.types import ObservationSpec

MINE = Trust(frozenset({"countdown"}))


def found(folder: Path, trainer: str, env: str, *behaviors: str) -> list[str]:
    settings = ", ".join(f"{name}: {{trainer_type: {trainer}}}" for name in behaviors)
    path = folder / "run.yaml"
    path.write_text(f"{{behaviors: {{{settings}}}, palus: {{env: {env}, sampling: {{workers: 0}}}}}}")
    return misfits(load_run(path), MINE)


@pytest.mark.parametrize(("trainer", "env"), [("appo", "countdown:CountdownOfTwo"), ("poca", "countdown:DuelOfTwo")])
def test_a_behavior_that_the_game_does_not_have_is_a_fault_with_a_suggestion(
    trainer: str, env: str, tmp_path: Path
) -> None:
    assert found(tmp_path, trainer, env, "Left", "Right") == []
    assert found(tmp_path, trainer, env, "Left", "Rihgt") == [
        f"behaviors.Rihgt: {env} has no behavior of that name; did you mean Right?",
        f"behaviors: {env} has Left and Right; add Right",
    ]
    assert found(tmp_path, trainer, env, "Left") == [f"behaviors: {env} has Left and Right; add Right"]


def test_an_observation_to_be_normalised_that_the_game_does_not_have_is_a_fault_with_a_suggestion() -> None:
    at = "behaviors.SoccerTwos.network_settings"
    names = f"{at}.normalize_names=[obs_0, obs1, speed]"
    run = load_run("soccertwos-ppo", [names, f"{at}.normalize=true"])
    assert misfits(run) == [
        f"{at}.normalize_names: SoccerTwos has no observation obs1; did you mean obs_1?",
        f"{at}.normalize_names: SoccerTwos has no observation speed; it has obs_0, obs_1",
    ]
    assert misfits(load_run("soccertwos-ppo", [names])) == [], "where nothing is normalised that is noted"
    two = CountdownOfTwo().spec
    other = replace(two.behaviors[1], observations=(ObservationSpec("obs_1", (1,)),))  # which one behavior sees
    told = _of_normalized("here", run.behaviors["SoccerTwos"], replace(two, behaviors=(two.behaviors[0], other)))
    hints = {"obs_0": "did you mean obs_1?", "obs1": "did you mean obs_1?", "speed": "it has left, obs_1"}
    has_no = "here.normalize_names: countdown has no observation"
    assert list(told) == [f"{has_no} {name}; {hint}" for name, hint in hints.items()]


def test_default_settings_stand_in_for_behaviors_that_a_file_leaves_out_and_are_judged_as_theirs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.yaml"
    for trainer, faults in (
        ("ppo", []),
        (
            "appo, network_settings: {memory: {sequence_length: 8}}",
            [
                f"behaviors.{name}.network_settings.memory.sequence_length: sequences are time_horizon long; remove it"
                for name in ("Left", "Right")
            ],
        ),
    ):
        path.write_text(
            f"{{default_settings: {{trainer_type: {trainer}}}, behaviors: {{Left: {{}}}}, "
            "palus: {env: 'countdown:DuelOfTwo'}}"
        )
        assert misfits(load_run(path), MINE) == faults
    path.write_text("{default_settings: {trainer_type: ppo}, palus: {env: 'countdown:DuelOfTwo'}}")
    assert misfits(load_run(path), MINE) == []
    path.write_text("{default_settings: {trainer_type: ppo}, palus: {env: 'countdown:Countdown'}}")
    (fault,) = misfits(load_run(path), MINE)
    assert "default_settings alone names nothing to train" in fault


def test_lessons_and_trainers_name_no_behavior_that_default_settings_cannot_stand_in_for(tmp_path: Path) -> None:
    criteria = "completion_criteria: {measure: progress, behavior: NAME, threshold: 0.5}"
    lessons = f"[{{name: a, value: 1, {criteria}}}, {{name: b, value: 0}}]"
    text = (
        "{default_settings: {trainer_type: ppo}, palus: {env: StrikersVsGoalie, trainers: {NAME: 'a:B'}}, "
        f"environment_parameters: {{ball_touch: {{curriculum: {lessons}}}}}}}"
    )
    path = tmp_path / "run.yaml"
    path.write_text(text.replace("NAME", "Goalie"))
    assert misfits(load_run(path)) == []
    path.write_text(text.replace("NAME", "Golie"))
    assert misfits(load_run(path)) == [
        f"{key}: StrikersVsGoalie has no behavior Golie; did you mean Goalie?"
        for key in ("palus.trainers", "environment_parameters.ball_touch.curriculum")
    ]


@pytest.mark.parametrize("name", ["Countdown", "Anything"])
def test_a_game_whose_only_behavior_has_no_name_takes_any(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, "appo", "countdown:Countdown", name) == []


def test_groups_that_worker_processes_would_tear_apart_are_refused(tmp_path: Path) -> None:
    (fault, *_) = found(tmp_path, "poca", "countdown:CountdownOfThree", "C")
    assert "groups of 1 and 2 agents, which worker processes cannot keep together" in fault
    assert not any("groups" in line for line in found(tmp_path, "ppo", "countdown:CountdownOfThree", "C"))
    assert found(tmp_path, "poca", "countdown:Countdown", "C") == []


STRIKERS = "Striker: BEHAVIOR, Goalie: BEHAVIOR"


@pytest.mark.parametrize(
    ("behaviors", "size", "palus", "faults"),
    [
        (STRIKERS, 128, "env: StrikersVsGoalie", []),
        (
            STRIKERS,
            192,
            "env: StrikersVsGoalie",
            [
                "behaviors.Striker: buffer_size / time_horizon = 3 rows, but 2 agents of a game learn; "
                "make buffer_size a multiple of time_horizon x 2"
            ],
        ),
        ("SoccerTwos: BEHAVIOR", 128, "env: SoccerTwos", []),
        ("SoccerTwos: BEHAVIOR", 256, "env: SoccerTwos, league: {learn: all_teams}", []),
        (
            "SoccerTwos: BEHAVIOR",
            128,
            "env: SoccerTwos, league: {learn: all_teams}",
            [
                "behaviors.SoccerTwos: buffer_size / time_horizon = 2 rows, but 4 agents of a game learn; "
                "make buffer_size a multiple of time_horizon x 4"
            ],
        ),
        ("Striker: BEHAVIOR", 128, "env: SoccerTwos", ["behaviors.Striker: SoccerTwos has no behavior of that name"]),
    ],
)
def test_games_in_workers_follow_from_those_who_learn_for_the_first_behavior(
    behaviors: str, size: int, palus: str, faults: list[str], tmp_path: Path
) -> None:
    behavior = f"{{trainer_type: ppo, hyperparameters: {{batch_size: 64, buffer_size: {size}}}, self_play: {{}}}}"
    path = tmp_path / "run.yaml"
    path.write_text(
        f"{{behaviors: {{{behaviors.replace('BEHAVIOR', behavior)}}}, "
        f"palus: {{{palus}, baseline_interval: 0, sampling: {{collector: workers, workers: 0}}}}}}"
    )
    found = misfits(load_run(path))
    assert [fault.partition("; rename")[0] for fault in found] == faults
    if not faults:  # the start has nothing against it either
        run = load_run(path).changed(checkpoint_settings={"results_dir": str(tmp_path)}, palus={"matmul": "highest"})
        with contextlib.closing(Run(run, log=lambda level, text: None)) as started:
            assert "x 64 decisions" in started.collector.describe()[0]


def test_a_trainer_that_learns_from_groups_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever collects asks no trainer for its name, so that one more is three files."""
    run, learner = load_run("debug", ["behaviors.SoccerTwos.trainer_type=ppo"]), {0: ("SoccerTwos", object())}
    assert demands_of(run, learner, {0: 2})[0].grouped is False
    monkeypatch.setattr(PpoBehavior, "learns_from_groups", True)
    assert demands_of(run, learner, {0: 2})[0].grouped is True
    (fault, *_) = found(tmp_path, "ppo", "countdown:CountdownOfThree", "C")
    assert fault.startswith("behaviors.C.trainer_type ppo: groups of 1 and 2 agents")


def test_members_alone_can_be_met_only_where_there_are_any() -> None:
    alone = "palus.league.opponents=members"
    assert misfits(load_run("soccertwos", [alone])) == [
        "palus.league.opponents members: there are none to meet; name them in palus.league.members"
    ]
    assert misfits(load_run("soccertwos", [alone, "palus.league.members=[random]"])) == []


def test_the_game_says_where_it_is_stepped_whom_it_has_to_measure_by_and_what_its_agents_see_and_do() -> None:
    def known(*overrides: str) -> tuple[object, ...]:
        run = load_run("debug", overrides)
        source = GameSource(run.env_id, run.palus.env_options, MINE)
        game = known_game(run, source, source.spec)
        return game.in_workers, game.yardsticks, game.with_images, game.with_numbers

    nothing = frozenset[str]()
    assert known() == (False, ("random", "ball-chaser"), nothing, nothing)
    assert known("palus.sampling.collector=workers")[0] is True
    assert known("palus.env=DuelToy") == (False, None, nothing, nothing)
    assert known("palus.env=countdown:Countdown")[:2] == (True, None)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ("palus.num_matches=8",),
            [
                "SoccerTwos: batch_size 256 has no effect; minibatches of appo are whole rows, and a rollout is "
                "32 rows of 512 decisions, so they have 512; raise palus.num_matches or batch_size"
            ],
        ),
        (("palus.num_matches=16",), []),
        (("palus.num_matches=0",), []),
        (("palus.num_matches=8", "palus.sampling.collector=workers"), []),
    ],
)
def test_minibatches_that_would_be_less_than_a_row_are_told_of(overrides: tuple[str, ...], told: list[str]) -> None:
    hyper = "behaviors.SoccerTwos.hyperparameters"
    sizes = (f"{hyper}.buffer_size=16384", f"{hyper}.batch_size=256")
    run = load_run("debug", ["behaviors.SoccerTwos.trainer_type=appo", *sizes, *overrides])
    source = GameSource("SoccerTwos", {}, MINE)
    lines = notes(run, known_game(run, source, source.spec))
    assert [line for line in lines if "whole rows" in line] == told
