"""PettingZoo's environments through the adapter: agents that leave or take turns, teams and verdicts, real games."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from palus.config import load_run
from palus.envs import make_game
from palus.envs.check_game import check_game
from palus.envs.game import observation_arrays, random_actions
from palus.errors import EnvError
from palus.run.misfits import misfits
from palus.train import Run
from palus.trust import Trust

pettingzoo = pytest.importorskip("pettingzoo", reason="needs the extra doom")
from gymnasium import spaces  # noqa: E402

from palus.envs.pettingzoo import PettingZooGame  # noqa: E402

TRUST = Trust(frozenset({"countdown_v1", "no_such_game"}))
REAL = Trust(frozenset({"pettingzoo", "mpe2"}))
pytestmark = pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
EXAMPLES = Path(__file__).parents[2] / "examples"


class Countdown(pettingzoo.ParallelEnv):
    """Agent i leaves after i + 1 steps; its reward is its action; the last one is cut off."""

    metadata = {"name": "countdown", "render_fps": 10}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def __init__(self, widths=(2, 2, 2)):
        self.widths = dict(zip(self.possible_agents, widths, strict=True))

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (self.widths[agent],))

    def action_space(self, agent):
        return spaces.Discrete(5)

    def observations(self):
        return {agent: np.full(2, self.t, np.float32) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.log = list(self.possible_agents), 0, []
        return self.observations(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        self.log.append(actions)
        observations = self.observations()
        gone = self.possible_agents[self.t - 1]
        terminations = {agent: agent == gone != "c" for agent in self.agents}
        truncations = {agent: agent == gone == "c" for agent in self.agents}
        infos = {agent: {"true_objective": self.t} for agent in self.agents}
        self.agents = [agent for agent in self.agents if agent != gone]
        return observations, {agent: float(a) for agent, a in actions.items()}, terminations, truncations, infos


def test_agents_leave_one_after_the_other_and_the_last_is_cut_off():
    env = Countdown()
    game = PettingZooGame(env, "countdown")
    assert game.spec.num_agents == 3 and game.spec.fps == 10
    game.reset(0)
    actions = np.array([[1], [2], [3]], np.float32)
    steps = [game.step(actions) for _ in range(3)]
    assert [s.reward.tolist() for s in steps] == [[1, 2, 3], [0, 2, 3], [0, 0, 3]]
    assert [s.terminated.tolist() for s in steps] == [[True, False, False], [False, True, False], [False] * 3]
    assert [s.truncated.tolist() for s in steps] == [[False] * 3, [False] * 3, [False, False, True]]
    assert [s.over for s in steps] == [False, False, True]
    assert [s.stats for s in steps] == [{i: {"true_objective": i + 1.0}} for i in range(3)]
    assert env.log[1] == {"b": 2, "c": 3}
    final = {"obs": np.zeros((3, 2), np.float32)}
    game.observe_final(final)
    assert final["obs"][2].tolist() == [3, 3]
    check_game(game, decisions=20)


class Untidy(Countdown):
    """It pays everybody, there or gone, and whoever is gone has both ended and been cut off, ever since."""

    def step(self, actions):
        observations, _, _, _, infos = super().step(actions)
        over = {agent: agent not in self.agents for agent in self.possible_agents}
        return observations, dict.fromkeys(self.possible_agents, 1.0), over, over, infos


def test_who_has_left_ends_and_is_paid_once_and_an_end_that_is_both_is_one_by_the_rules():
    game = PettingZooGame(Untidy(), "untidy")
    game.reset(0)
    steps = [game.step(np.ones((3, 1), np.float32)) for _ in range(3)]
    assert [s.reward.tolist() for s in steps] == [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert [s.terminated.tolist() for s in steps] == np.eye(3, dtype=bool).tolist()
    assert not any(s.truncated.any() for s in steps)
    assert steps[2].points == (0.0, 0.5, 1.0), "paid once, twice and three times"


class Deserted(Countdown):
    def step(self, actions):
        observations, rewards, _, _, infos = super().step(actions)
        return observations, rewards, {}, {}, infos


def test_who_leaves_without_an_end_is_named():
    game = PettingZooGame(Deserted(), "deserted")
    game.reset(0)
    with pytest.raises(EnvError, match="deserted: a left without an end of its episode"):
        game.step(np.zeros((3, 1), np.float32))


def test_a_module_is_named_by_its_path_and_must_be_parallel():
    module = types.ModuleType("countdown_v1")
    sys.modules["countdown_v1"] = module
    try:
        with pytest.raises(EnvError, match="countdown_v1 has neither parallel_env nor env"):
            make_game("palus.envs.pettingzoo:make", TRUST, module="countdown_v1")
        module.parallel_env = Countdown
        assert make_game("palus.envs.pettingzoo:make", TRUST, module="countdown_v1").spec.env_id == "countdown_v1"
    finally:
        del sys.modules["countdown_v1"]
    with pytest.raises(EnvError, match="no_such_game cannot be imported"):
        make_game("palus.envs.pettingzoo:make", TRUST, module="no_such_game")


class Hunt(pettingzoo.ParallelEnv):
    """Two wolves and a sheep, which sees more; it may go on only where its mask allows it. Four steps."""

    metadata = {"name": "hunt"}  # noqa: RUF012
    possible_agents = ["wolf_0", "sheep_0", "wolf_1"]  # noqa: RUF012

    def observation_space(self, agent):
        if agent != "sheep_0":
            return spaces.Box(0, 9, (2,))
        masked = {"observation": spaces.Box(0, 9, (3,)), "action_mask": spaces.Box(0, 1, (4,), np.int8)}
        return spaces.Dict(masked)

    def action_space(self, agent):
        return spaces.Discrete(4 if agent == "sheep_0" else 2)

    def observations(self):
        mask = np.arange(4) == self.t % 4
        wolves = {agent: np.full(2, self.t, np.float32) for agent in self.agents if agent != "sheep_0"}
        return wolves | {"sheep_0": {"observation": np.ones(3, np.float32), "action_mask": mask.astype(np.int8)}}

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.log = list(self.possible_agents), 0, []
        return self.observations(), {}

    def step(self, actions):
        assert actions["sheep_0"] == self.t % 4, "a forbidden choice"
        self.log.append(actions)
        self.t += 1
        told = dict.fromkeys(self.agents, self.t == 4)
        rewards, over = dict.fromkeys(self.agents, 1.0), self.t == 4
        self.agents = [] if over else self.agents
        return self.observations(), rewards, told, {}, {}


def test_agents_with_different_spaces_are_behaviors_and_masks_are_obeyed():
    env = Hunt()
    game = PettingZooGame(env, "hunt")
    assert [(b.name, b.observation_sizes, b.actions.masked) for b in game.spec.behaviors] == [
        ("wolf", (2,), False),
        ("sheep", (3,), True),
    ]
    assert [game.spec.agents_of(name) for name in ("wolf", "sheep")] == [(0, 2), (1,)]
    assert game.spec.behavior("sheep").observations[0].name == "observation"
    check_game(game, decisions=12)
    game.reset(0)
    game.step({"wolf": np.array([[1], [0]], np.float32), "sheep": np.zeros((1, 1), np.float32)})
    assert env.log == [{"wolf_0": 1, "wolf_1": 0, "sheep_0": 0}]


def test_behaviors_whose_agents_are_named_alike_are_named_after_their_first_agent():
    game = PettingZooGame(Countdown(widths=(2, 2, 3)), "countdown")
    assert [b.name for b in game.spec.behaviors] == ["a", "c"]


def played(game, seed=0):
    """The last step of a match of random actions."""
    game.reset(seed)
    random = np.random.default_rng(seed)
    while True:
        step = game.step(random_actions(game, random))
        if step.over:
            return step


def test_teams_are_named_by_patterns_and_decide_by_the_means_of_their_members():
    game = PettingZooGame(Hunt(), "hunt", teams=["sheep*", ["wolf_0", "wolf_1"]])
    assert (game.spec.teams, [agent.group for agent in game.spec.agents]) == ((1, 0, 1), [1, 0, 1])
    assert played(game).points == (0.5, 0.5), "four of pay for everybody, however many a team has"
    assert played(PettingZooGame(Hunt(), "hunt", ["sheep*", "wolf*"], handicaps=[0, 1])).points == (1.0, 0.0)
    told = PettingZooGame(Countdown(), "countdown", teams=["a", "[bc]"], wins="true_objective")
    assert played(told).points == (0.0, 1.0), "1 against the mean of 2 and 3"
    with pytest.raises(EnvError, match="nothing in the infos of wolf_0 is called 'goals'"):
        played(PettingZooGame(Hunt(), "hunt", wins="goals"))


@pytest.mark.parametrize(
    ("teams", "fault"),
    [
        (["wolf*"], "sheep_0 on no team, or on several; its agents are wolf_0, sheep_0, wolf_1"),
        (["wolf*", "*_0"], "wolf_0 on no team, or on several"),
        (["wolf*", "sheep*", "goat*"], "goat\\* is no agent"),
    ],
)
def test_every_agent_is_on_one_team(teams, fault):
    with pytest.raises(EnvError, match=fault):
        PettingZooGame(Hunt(), "hunt", teams)


def test_handicaps_are_one_for_each_team():
    with pytest.raises(EnvError, match="1 handicaps; expected one for each of 2 teams"):
        PettingZooGame(Hunt(), "hunt", ["wolf*", "sheep*"], handicaps=[1])


def test_who_waits_for_its_turn_has_one_choice_that_changes_nothing():
    game = make_game("palus.envs.pettingzoo:make", REAL, module="pettingzoo.classic.tictactoe_v3")
    (behavior,) = game.spec.behaviors
    assert behavior.observations[0].shape == (18,) and behavior.actions.masked
    game.reset(0)
    actions, over = np.zeros((2, 1), np.float32), []
    for turn, square in enumerate((0, 3, 1, 4, 2)):  # the first fills its column, whatever the other "does"
        seen = observation_arrays(game.spec)
        game.observe(seen)
        assert seen["action_masks"].sum(1).tolist() == ([9 - turn, 1] if turn % 2 == 0 else [1, 9 - turn])
        actions[:] = 0
        actions[turn % 2] = square
        step = game.step(actions)
        over.append(step.over)
    assert over == [False] * 4 + [True] and step.points == (1.0, 0.0) and step.reward.tolist() == [1, -1]


@pytest.mark.parametrize("module", ["pettingzoo.classic.connect_four_v3", "mpe2.simple_tag_v3"])
def test_real_games_keep_the_contract(module):
    pytest.importorskip(module, reason="needs the package of the game")
    game = make_game("palus.envs.pettingzoo:make", REAL, module=module)
    assert {kind.actions.masked for kind in game.spec.behaviors} == {"connect_four" in module}, "tag knows no turns"
    check_game(game, decisions=60)


@pytest.mark.parametrize(("example", "behaviors"), [("connect-four", ["ConnectFour"]), ("tag", ["adversary", "agent"])])
def test_real_games_of_two_and_of_four_are_trained_in_the_league_and_rated(tmp_path, example, behaviors):
    file = EXAMPLES / f"{example}.yaml"
    pytest.importorskip("mpe2" if example == "tag" else "pettingzoo.classic.connect_four_v3")
    assert not misfits(load_run(str(file), []), REAL)
    sizes = [
        f"behaviors.{name}.hyperparameters.{k}_size={n}"
        for name in behaviors
        for k, n in (("batch", 64), ("buffer", 512))
    ]
    small = [
        f"behaviors.{name}.self_play.{k}={n}"
        for name in behaviors
        for k, n in (("save_steps", 500), ("team_change", 500))
    ]
    place = f"checkpoint_settings.results_dir={json.dumps(str(tmp_path))}"
    fixed = ("env_settings.seed=1", "palus.sampling.collector=in_process", "palus.num_matches=4", "palus.threads=1")
    run = Run(load_run(str(file), [place, *fixed, *sizes, *small]), trust=REAL)
    with run.report:
        for _ in range(2):
            run.iterate()
    run.save()
    run.close()
    assert min(run.steps.values()) > 0, "every behavior had its turn"
    assert run.league.snapshot_count > len(behaviors) and run.league.payoffs.cells
    assert len(list(run.folder.root.glob("*/*.onnx"))) == len(behaviors)


class LastOne(pettingzoo.AECEnv):
    """Three in turn; who chooses 1 puts the next one out. The last one is paid 1, the others -1 when they are out."""

    metadata = {"name": "last_one"}  # noqa: RUF012
    render_mode = None
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.full(1, len(self.alive), np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.alive = list(self.possible_agents), list(self.possible_agents)
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "a"

    def step(self, action):
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.rewards = dict.fromkeys(self.agents, 0.0)
        following = self.alive[(self.alive.index(self.agent_selection) + 1) % len(self.alive)]
        if action:
            self.alive.remove(following)
            self.terminations[following], self.rewards[following] = True, -1.0
        if len(self.alive) == 1:
            self.terminations[self.alive[0]], self.rewards[self.alive[0]] = True, 1.0
        self._accumulate_rewards()
        self.agent_selection = self.alive[(self.alive.index(self.agent_selection) + 1) % len(self.alive)]
        self._deads_step_first()


def test_who_is_out_in_a_game_of_turns_is_gone_while_the_others_play_on():
    game = PettingZooGame(LastOne(), "last_one")
    check_game(game, decisions=40)
    game.reset(0)
    steps = [game.step(np.array([[a], [a], [a]], np.float32)) for a in (0, 1)]  # b puts c out
    assert game.active.tolist() == [True, True, False]
    assert [s.terminated.tolist() for s in steps] == [[False] * 3, [False, False, True]]
    assert steps[1].reward.tolist() == [0, 0, -1] and not steps[1].over
    last = game.step(np.ones((3, 1), np.float32))  # a puts b out
    assert last.over and last.reward.tolist() == [1, -1, 0] and last.points == (1.0, 0.25, 0.25)
