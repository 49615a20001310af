"""Environments made for ML-Agents' Python interface, in this process: what they say, and what is told to them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import line_envs
import numpy as np
import pytest
from events import read_values
from line_envs import Line, solved
from typer.testing import CliRunner

from palus.cli import app
from palus.config import RunFile, load_run
from palus.errors import EnvError, LostGameError, ProtocolError, TrustError
from palus.train import Run, train
from palus.trust import NOBODY, Trust
from palus.types import MASKS
from palus.unity.base_env import BaseEnvGame, Channel, make
from palus.unity.news import News
from palus.unity.side_channels import HISTOGRAM, PARAMETERS, STATISTICS, SUM, Statistic, statistics_messages

TRUST = Trust(frozenset({"line_envs"}))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_an_environment_says_who_decides_and_who_ended() -> None:
    game = BaseEnvGame(env := Line(("vector", "entities"), 1, 1, teams=2, goals=(0,), masked=True, seed=3))
    game.reset({}, 0)
    news = game.receive()
    steps = news.decisions["Line"]
    goals = [team.goal for team in env.playing["Line"]]
    spec = game.behaviors["Line"]
    assert [(o.shape, o.goal) for o in spec.observations] == [((1,), True), ((6, 3), False)] and spec.branches == (3,)
    assert steps.observations["obs_0"].ravel().tolist() == goals and not news.ends
    assert steps.observations[MASKS].tolist() == [[True, True, goal < 0] for goal in goals]
    played: list[Any] = []
    act = env.set_actions
    env.set_actions = lambda name, action: (played.append(action), act(name, action))[1]  # type: ignore[method-assign]
    ways = np.array([[5.0 * goal, goal > 0] for goal in goals], np.float32)  # the number is clipped
    for _ in range(5):
        game.send({"Line": ways})
        acted = played.pop()
        assert acted.continuous.ravel().tolist() == goals and acted.discrete.ravel().tolist() == [g > 0 for g in goals]
        news = game.receive()
    assert news.ends["Line"].agent.tolist() == news.decisions["Line"].agent.tolist() == [0, 1]
    assert news.ends["Line"].reward == pytest.approx([1.04, 1.04]) and not news.ends["Line"].truncated.any()
    assert news.decisions["Line"].reward.tolist() == [0.0, 0.0]


def told(change: Callable[[Any, Any], None]) -> BaseEnvGame:
    env = Line(discrete=1, teams=2)
    env.reset()
    change(*env.get_steps("Line"))
    env.reset = lambda: None  # type: ignore[method-assign]
    game = BaseEnvGame(env)
    game.reset({}, 0)
    return game


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda d, t: d.reward.fill(np.nan), "the reward of Line is NaN"),
        (lambda d, t: d.obs[0].fill(np.inf), "obs_0 of Line is NaN or infinite"),
        (lambda d, t: d.obs.append(d.obs[0]), "2 observations of Line; expected 1"),
        (lambda d, t: d.obs.__setitem__(0, d.obs[0][:1]), r"obs_0 of Line: shape \(1, 1\); expected \(2, 1\)"),
        (lambda d, t: d.agent_id.fill(4), r"agents \[4, 4\] of Line: one is told of twice"),
        (lambda d, t: d.action_mask.append(d.action_mask[0]), "action mask of Line: 4 choices; expected 2"),
        (lambda d, t: d.__dict__.pop("group_id"), "Line: get_steps raised AttributeError: .*group_id"),
    ],
)
def test_what_no_environment_may_say_is_one_sentence(change: Any, found: str) -> None:
    with pytest.raises(ProtocolError, match=found):
        told(change).receive()


LATE = type("UnityTimeOutException", (Exception,), {})  # called as the one of ML-Agents


@pytest.mark.parametrize(("raised", "lost"), [(KeyError("unexpected"), False), (LATE("slow"), True)])
def test_what_an_environment_raises_is_told_with_its_place(raised: Exception, lost: bool) -> None:
    def step() -> None:
        raise raised

    env = Line()
    env.step = step  # type: ignore[method-assign]
    game = BaseEnvGame(env)
    game.reset({}, 0)
    game.receive()
    with pytest.raises(ProtocolError, match=rf"Line: step raised {type(raised).__name__}: .*test_base_env\.py") as told:
        game.send({"Line": np.zeros((16, 1), np.float32)})
    assert isinstance(told.value, LostGameError) == lost and told.value.__cause__ is raised


def with_channels(side_channels: Any, worker_id: int, seed: int, teams: int = 1) -> Line:
    env = Line(teams=teams, seed=seed)
    env.channels = {channel.channel_id: channel for channel in side_channels}  # type: ignore[attr-defined]
    env.worker = worker_id  # type: ignore[attr-defined]
    return env


def test_a_factory_is_given_what_it_asks_for_and_parameters_and_statistics_go_through_its_channels() -> None:
    trust = Trust(frozenset({"test_base_env"}))
    game = make({"factory": "test_base_env:with_channels", "teams": 2}, trust, 7)(3)
    env = game._env
    assert (env.worker, env.seed, env.teams) == (3, 10, 2)
    game.reset({"speed": 2.0}, 0)
    assert env.channels[PARAMETERS].message_queue == [b"\x05\x00\x00\x00speed\x00\x00\x00\x00\x00\x00\x00@"]
    ((_, payload),) = statistics_messages({"goals": 3.0})
    env.channels[STATISTICS].on_message_received(SimpleNamespace(get_raw_bytes=lambda: payload))
    (statistic,) = game.receive().statistics
    assert (statistic.name, statistic.value) == ("goals", 3.0)
    with pytest.raises(EnvError, match="Line has no environment parameters; found speed"):
        make({"factory": "line_envs:Line"}, TRUST, 7)(0).reset({"speed": 2.0}, 0)
    assert Channel(PARAMETERS).message_queue == []


def run_file(folder: Path, factory: str = "line_envs:Line", *overrides: str, **options: Any) -> Path:
    behavior = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": 0.01, "beta": 0.001},
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": 1500,
        "summary_freq": 1000,
    }
    file = folder / "run.yaml"
    file.write_text(json.dumps({
        "behaviors": {"Line": behavior},
        "env_settings": {"seed": 1},
        "checkpoint_settings": {"results_dir": str(folder / "results"), "run_id": "x"},
        "palus": {
            "env": "palus.unity.base_env:make", "env_options": {"factory": factory, **options},
            "threads": 1, "matmul": "highest",
        },
    }))  # fmt: skip
    return file


def test_the_command_trains_in_an_environment_that_the_run_file_names(tmp_path: Path) -> None:
    file = str(run_file(tmp_path, discrete=1, continuous=0))
    refused = CliRunner().invoke(app, ["train", file])
    assert refused.exit_code == 2 and "--trust line_envs" in refused.output
    done = CliRunner().invoke(app, ["train", file, "--trust", "line_envs", "env_settings.num_envs=2"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "results" / "x" / "Line.onnx").exists()
    assert "2 games of Line" in done.output and "no effect" not in done.output
    folder = str(tmp_path / "results" / "x")
    refused = CliRunner().invoke(app, ["enjoy", folder])
    assert refused.exit_code == 2 and "--trust line_envs" in refused.output
    words = ["enjoy", folder, "--trust", "line_envs", "--max-num-episodes", "30"]
    first, second = (CliRunner().invoke(app, [*words, "--json"]) for _ in "ab")
    found, again = (json.loads(said.stdout.splitlines()[-1]) for said in (first, second))
    assert found["objectives"] == again["objectives"] and len(found["objectives"]) == 30
    assert found["mean"] > 0.5 and found["steps"] >= 1500
    for more, sentence in ((["--video", "x.mp4"], "a window of its own"), (["--env", "Game"], "leave it out")):
        said = CliRunner().invoke(app, [*words, *more])
        assert said.exit_code == 2 and sentence in said.output


def test_games_are_given_the_drawn_seed_that_the_run_records(tmp_path: Path) -> None:
    run = load_run(run_file(tmp_path), ["behaviors.Line.max_steps=0", "env_settings={seed: -1, num_envs: 2}"])
    given: list[int] = []
    train(run, trust=TRUST, on_start=lambda parts: given.extend(game._env.seed for game in parts.source.games))
    written = load_run(tmp_path / "results" / "x" / "configuration.yaml").env_settings.seed
    assert given == [written, written + 1] and written >= 0


def test_a_factory_that_is_not_there_or_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"palus\.env_options\.factory line_envs:Nothing: .*name what makes it"):
        train(load_run(run_file(tmp_path, "line_envs:Nothing")), trust=TRUST)
    with pytest.raises(EnvError, match=r"line_envs:Line refuses the options \['levels', 'seed'\]"):
        train(load_run(run_file(tmp_path, levels=3)), trust=TRUST)
    with pytest.raises(TrustError, match="would run code of the module os"):
        train(load_run(run_file(tmp_path, "os:system")), trust=NOBODY)


def test_an_exception_ends_the_run_with_one_sentence_and_saved(tmp_path: Path) -> None:
    run = load_run(run_file(tmp_path, "line_envs:Raising"))
    with pytest.raises(ProtocolError, match=r"Raising: step raised KeyError: 'unexpected' \(.*line_envs\.py:\d+\)"):
        train(run, trust=TRUST)
    assert (tmp_path / "results" / "x" / "Line" / "checkpoint.pt").exists()
    found = Run(run, resume=True, trust=TRUST)
    found.close()


def late_run(folder: Path, *overrides: str, late: int, steps: int = 3000) -> RunFile:
    """A run whose first behavior is there from the start, and whose second appears after so many steps."""
    file = run_file(folder, behaviors=["Line", "Late"], late=late, continuous=0, discrete=1)
    tree = json.loads(file.read_text())
    tree["default_settings"] = tree.pop("behaviors")["Line"] | {"max_steps": steps, "checkpoint_interval": 10**6}
    file.write_text(json.dumps(tree))
    return load_run(file, list(overrides))


def test_ctrl_c_in_a_slow_game_saves_what_was_learned_before_its_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, heard, told = BaseEnvGame.receive, list[int](), list[str]()

    def counted(game: BaseEnvGame, *asked: Any) -> Any:
        heard.append(1)
        if len(heard) == 700:  # the second rollout is not full yet
            signal.raise_signal(signal.SIGINT)
        return receive(game)

    monkeypatch.setattr(BaseEnvGame, "receive", counted)
    run = load_run(run_file(tmp_path, discrete=1, continuous=0, teams=1))
    result = train(run, trust=TRUST, log=lambda level, text: told.append(text))
    assert "Learning was interrupted. Please wait while the graph is generated." in told
    assert len(heard) <= 701 and 512 <= result.steps < 700 and result.model.is_file()


def test_a_summary_has_the_game_s_statistics_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = BaseEnvGame.receive
    monkeypatch.setattr(
        BaseEnvGame,
        "receive",
        lambda game, *asked: replace(
            receive(game), statistics=(Statistic("steps", 1.0, SUM), Statistic("lead", 2.0, HISTOGRAM))
        ),
    )
    short = "behaviors.Line.hyperparameters.buffer_size=100"
    file = run_file(tmp_path, discrete=1, continuous=0, teams=1)
    train(load_run(file, [short, "behaviors.Line.summary_freq=500"]), trust=TRUST)
    lines = map(json.loads, (tmp_path / "results/x/run_logs/progress.jsonl").read_text().splitlines())
    told = [line["values"]["steps"] for line in lines if line["kind"] == "summary"]
    assert len(told) == 3 and all(500 <= steps <= 620 for steps in told)
    spread = [count for _, tag, count in read_values(tmp_path / "results/x/Line") if tag == "lead_hist"]
    assert spread == told


def test_a_game_in_which_nobody_decides_any_more_leaves_a_saved_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, heard = BaseEnvGame.receive, list[int]()

    def silent(game: BaseEnvGame, *asked: Any) -> Any:
        heard.append(1)
        return receive(game) if len(heard) < 700 else News({}, {})

    monkeypatch.setattr(BaseEnvGame, "receive", silent)
    monkeypatch.setattr("palus.rollout.exchanging.IDLE", 50)
    with pytest.raises(EnvError, match="no agent of Line asked for a decision"):
        train(load_run(run_file(tmp_path, discrete=1, continuous=0, teams=1)), trust=TRUST)
    assert (tmp_path / "results/x/Line.onnx").is_file() and (tmp_path / "results/x/Line/checkpoint.pt").is_file()


def test_a_behavior_that_appears_in_mid_run_learns_is_saved_and_resumed(tmp_path: Path) -> None:
    run, folder, told = late_run(tmp_path, late=100), tmp_path / "results" / "x", list[str]()
    parts = Run(run, trust=TRUST, log=lambda level, text: told.append(text))
    with parts.report:
        parts.iterate()
        assert [t.name for t in parts.trainees] == ["Line"]
        while not parts.finished:
            parts.iterate()
        line, late = parts.trainees
        assert (line.name, late.name) == ("Line", "Late") and 3000 <= late.step < line.step - 1000
        assert float(np.mean([e.reward for e in late.record.recent])) > 0.7
        parts.save()
    parts.close()
    assert told.count("Late appeared, and is trained from now on.") == 1
    assert any(text.startswith("Late. Step: 1000.") for text in told)
    assert (folder / f"Late/Late-{late.step}.onnx").exists() and list((folder / "Late").glob("events.out.tfevents.*"))
    assert json.loads((folder / "run_logs/training_status.json").read_text())["Late"]["checkpoints"]
    weights = late.learner.network.acting_arrays()
    for late_again in (100, 0):  # where it is not yet there again, and where it is from the start, before the other
        again = late_run(tmp_path, late=late_again, steps=3600)
        parts = Run(again, resume=True, trust=TRUST, log=lambda level, text: None)
        assert [(t.name, t.step) for t in parts.trainees] == [("Line", line.step), ("Late", late.step)]
        found = parts.trainees[1].learner.network.acting_arrays()
        assert all((found[name] == array).all() for name, array in weights.items())
        while not parts.finished:
            parts.iterate()
        assert parts.trainees[1].step >= 3600
        parts.close()


def test_one_that_the_run_file_has_no_settings_for_plays_at_random_and_the_run_goes_on(tmp_path: Path) -> None:
    file, told = run_file(tmp_path, behaviors=["Line", "Late"], late=20, continuous=0, discrete=1), list[str]()
    train(load_run(file), trust=TRUST, log=lambda level, text: told.append(text))
    (complaint,) = [text for text in told if "Late" in text]
    assert complaint.startswith("Late appeared, and its agents play at random: the run file has no settings for it")


def test_one_whose_demonstrations_are_not_there_plays_at_random_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palus.unity.discovery.SEARCH", 5)
    both = 'behaviors={"Line": {}, "Late": {"behavioral_cloning": {"demo_path": "nowhere.demo"}}}'
    run, told = late_run(tmp_path, both, late=50, steps=1000), list[str]()
    train(run, trust=TRUST, log=lambda level, text: told.append(text))
    (complaint,) = [text for text in told if "at random" in text]
    assert complaint.startswith("Late appeared, and its agents play at random: nowhere.demo: ")
    assert (tmp_path / "results/x/Line.onnx").exists()


def test_one_that_the_run_file_names_may_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.unity.discovery.SEARCH", 5)
    run, told = late_run(tmp_path, late=50), list[str]()
    run = run.model_copy(update={"behaviors": dict.fromkeys(["Late", "Line"], run.default_settings)})
    parts = Run(run, trust=TRUST, log=lambda level, text: told.append(text))
    assert parts.opening == ["Late has not appeared yet; it is trained when it does."]
    for _ in range(4):
        parts.iterate()
    assert [(t.name, t.step > 0) for t in parts.trainees] == [("Line", True), ("Late", True)]
    parts.save()
    parts.close()
    resumed = Run(run, resume=True, trust=TRUST)
    assert [t.step for t in resumed.trainees] == [t.step for t in parts.trainees]
    resumed.close()


PLAY: dict[str, Any] = {"self_play": {"save_steps": 300, "team_change": 600, "swap_steps": 200, "window": 3}}


def test_a_league_grows_by_a_behavior_that_appears_in_mid_run(tmp_path: Path) -> None:
    file = run_file(
        tmp_path, behaviors=["A?team=0", "A?team=1", "B?team=1"], late=60, continuous=0, discrete=1, teams=4
    )
    tree = json.loads(file.read_text())
    tree["default_settings"] = tree.pop("behaviors")["Line"] | PLAY | {"max_steps": 1200}
    file.write_text(json.dumps(tree))
    parts = Run(load_run(file), trust=TRUST, log=lambda level, text: None)
    while not parts.finished:
        parts.iterate()
    assert [t.name for t in parts.trainees] == ["A", "B"]
    assert all(len(parts.league.pools[policy].past) > 1 for policy in (0, 1))
    parts.save()
    parts.close()
    again = Run(load_run(file), resume=True, trust=TRUST, log=lambda level, text: None)
    assert again.league.elo == parts.league.elo and again.steps == parts.steps
    again.close()


def test_an_expert_is_paid_one_an_episode() -> None:
    """The environments' own measure: what a trained policy can reach."""
    env = Line(("vector",), continuous=1, discrete=1, teams=3, size=2, seed=5)
    paid = 0.0
    for _, ended, _ in solved(env, 26):
        paid += float(ended.group_reward.sum())
    assert paid == pytest.approx(2 * 3 * 5 * line_envs.SUCCESS)
