"""Gymnasium's environments through the adapter: spaces, ends, vectorised environments, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs import GameSource, make_game
from palus.envs.check_game import check_game
from palus.envs.game import observation_arrays, random_actions
from palus.errors import EnvError
from palus.trust import Trust
from palus.types import MASKS, Continuous, Discrete

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra doom")
from gymnasium import spaces  # noqa: E402

from palus.envs.gymnasium import GymnasiumGame, VectorGame, _info_of  # noqa: E402
from palus.envs.gymnasium_spaces import ActionWriter, ObservationReader  # noqa: E402

MAKE, TRUST = "palus.envs.gymnasium:make", Trust(frozenset({"gymnasium"}))


def look(game):
    out = {o.name: np.zeros((game.spec.num_agents, *o.shape), o.dtype) for o in game.spec.behaviors[0].observations}
    game.observe(out)
    return out


def test_cart_pole_plays_as_gymnasium_plays_it():
    game, env = make_game(MAKE, TRUST, id="CartPole-v1"), gymnasium.make("CartPole-v1")
    game.reset(3)
    observation, _ = env.reset(seed=3)
    for t in range(40):
        assert look(game)["obs"][0].tolist() == observation.tolist()
        step = game.step(np.array([[t % 2]], np.float32))
        observation, reward, terminated, truncated, _ = env.step(t % 2)
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
        if step.over:
            break
    else:
        pytest.fail("the pole did not fall")
    game.close()
    env.close()


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4"])
def test_common_environments_keep_the_contract(id):
    check_game(make_game(MAKE, TRUST, id=id), decisions=250)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_choice_that_the_environment_forbids_is_masked(num_envs):
    game = make_game(MAKE, TRUST, id="Taxi-v4", num_envs=num_envs)
    assert game.spec.behaviors[0].actions.masked
    game.reset(5)
    out = observation_arrays(game.spec)
    for t in range(4):
        game.observe(out)
        row = game._env.unwrapped.envs[-1].unwrapped if num_envs > 1 else game._env.unwrapped
        assert out[MASKS][-1].tolist() == row.action_mask(row.s).astype(bool).tolist() != [True] * 6
        game.step(random_actions(game, np.random.default_rng(t)))
    game.close()


def test_a_box_of_two_dimensions_is_a_vector_and_no_list_of_entities():
    reader = ObservationReader(spaces.Box(-1, 1, (3, 4)))
    assert reader.specs[0].shape == (12,) and reader.specs[0].is_vector


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (5, 4), np.uint8), (1, 5, 4), "uint8"),  # a grey picture
        (spaces.Box(0, 1, (5, 4, 3), np.float32), (3, 5, 4), "float32"),
        (spaces.Box(0, 1, (6, 7, 2), np.int8), (84,), "float32"),  # a board, smaller than any convolution
        (spaces.Box(0, 1, (6, 7, 2), np.bool_), (84,), "float32"),
    ],
)
def test_pictures_keep_their_bytes_and_boards_are_vectors(space, shape, dtype):
    (spec,) = ObservationReader(space).specs
    assert (spec.shape, spec.dtype, spec.is_image) == (shape, dtype, len(shape) == 3)
    out = {"obs": np.zeros((1, *shape), dtype)}
    space.seed(0)
    seen = space.sample()
    ObservationReader(space).write_one(seen, out)
    expected = np.moveaxis(seen, -1, 0) if shape == (3, 5, 4) else seen.reshape(shape)
    assert out["obs"][0].tolist() == expected.astype(dtype).tolist()


def test_several_choices_are_mostly_zeros_where_each_has_more_than_two():
    sparse = [ObservationReader(spaces.MultiDiscrete(sizes)).specs[0].sparse for sizes in ([3, 5], [2, 5], [2, 2])]
    assert sparse == [True, False, False]


def test_vectorised_environments_go_on_after_their_ends_and_show_their_last_observation():
    game = make_game(MAKE, TRUST, id="CartPole-v1", num_envs=4)
    assert isinstance(game, VectorGame) and game.spec.num_agents == 4
    twin = [gymnasium.make("CartPole-v1") for _ in range(4)]
    for i, env in enumerate(twin):
        env.reset(seed=11 + i)
    game.reset(11)
    for _ in range(30):
        step = game.step(np.ones((4, 1), np.float32))
        last = [env.step(1)[0] for env in twin]
        if step.terminated.any():
            break
    row = int(step.terminated.argmax())
    final = {"obs": np.zeros((4, 4), np.float32)}
    game.observe_final(final)
    assert final["obs"][row].tolist() == last[row].tolist()
    assert abs(look(game)["obs"][row]).max() < 0.05 < abs(last[row][2])  # the next episode begins upright
    assert game.active.all() and not step.over
    for env in twin:
        env.close()
    check_game(game, repeatable=False)


def test_an_own_vector_implementation_is_inactive_while_it_resets():
    game = make_game(MAKE, TRUST, id="CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    game.reset(5)
    while not (step := game.step(np.ones((3, 1), np.float32))).terminated.any():
        assert game.active.all()
    row = int(step.terminated.argmax())
    assert not game.active[row] and abs(look(game)["obs"][row][2]) > 0.2  # the fallen pole is still to be seen
    game.reset(5)
    assert game.active.all()
    while not (step := game.step(np.ones((3, 1), np.float32))).terminated.any():
        pass
    step = game.step(np.ones((3, 1), np.float32))
    assert game.active[row] and step.reward[row] == 0 and abs(look(game)["obs"][row][2]) < 0.05
    check_game(game, repeatable=False)


class Parts(gymnasium.Env):
    """Every kind of space; it remembers what it was told, and says how it went."""

    observation_space = spaces.Dict(
        picture=spaces.Box(0, 255, (6, 5, 3), np.uint8), choice=spaces.Discrete(3, start=1), flags=spaces.MultiBinary(2)
    )
    action_space = spaces.Tuple(
        (
            spaces.Discrete(4, start=-1),
            spaces.Dict(a=spaces.MultiDiscrete([2, 3]), b=spaces.Box(np.float32([-1, 0]), np.float32([1, 9]))),
            spaces.MultiBinary(2),
        )
    )

    def reset(self, *, seed=None, options=None):
        return self.look(), {}

    def look(self):
        picture = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
        return {"picture": picture, "choice": 2, "flags": np.array([0, 1], np.int8)}

    def step(self, action):
        self.told = action
        return self.look(), 0.5, False, True, {"true_objective": 7, "episode_extra_stats": {"kills": 3}}


def test_every_kind_of_space_is_read_and_written():
    env = Parts()
    game = GymnasiumGame(env, "parts")
    game.reset(0)
    seen = look(game)
    assert seen["picture"].shape == (1, 3, 6, 5) and seen["picture"].dtype == np.uint8
    assert seen["picture"][0, :, 0, 1].tolist() == [3, 4, 5]
    assert seen["choice"].tolist() == [[0, 1, 0]] and seen["flags"].tolist() == [[0, 1]]
    parts = (Discrete(4), Discrete(2), Discrete(3), Continuous(1, -1, 1), Continuous(1, 0, 9), Discrete(2), Discrete(2))
    assert game.spec.behaviors[0].actions.parts == parts
    assert game.spec.fps == 30, "where the environment does not say"
    step = game.step(np.array([[3, 1, 2, -5.0, 4.5, 0, 1]], np.float32))
    first, nested, flags = env.told
    assert first == 2 and nested["a"].tolist() == [1, 2] and nested["b"].tolist() == [-1, 4.5]
    assert flags.tolist() == [0, 1] and env.action_space.contains(env.told)
    assert step.over and step.truncated[0] and step.stats == {0: {"true_objective": 7.0, "kills": 3.0}}


class Both(gymnasium.Env):
    """Ends by the rules as its time is up."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, True, True, {}


def test_an_end_that_is_both_is_one_by_the_rules():
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    for game in (
        GymnasiumGame(Both(), "both"),
        VectorGame(gymnasium.vector.SyncVectorEnv([Both] * 2, autoreset_mode=mode), "both"),
    ):
        game.reset(0)
        step = game.step(np.zeros((game.spec.num_agents, 1), np.float32))
        assert step.terminated.all() and not step.truncated.any()
        game.close()


class Masked(Both):
    def reset(self, *, seed=None, options=None):
        return super().reset()[0], {"action_mask": np.array([1, 0], np.int8)}


def test_one_of_several_that_tells_no_mask_forbids_nothing():
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    game = VectorGame(gymnasium.vector.SyncVectorEnv([Masked] * 2, autoreset_mode=mode), "masked")
    game.reset(0)
    game._info = game._info | {"_action_mask": np.array([True, False])}
    out = observation_arrays(game.spec)
    game.observe(out)
    assert out[MASKS].tolist() == [[True, False], [True, True]]
    game.close()


class Several(Masked):
    """Its mask is of two choices, which parts of an action cannot have."""

    action_space, closed = spaces.MultiDiscrete([2, 2]), 0

    def reset(self, *, seed=None, options=None):
        return super().reset()[0], {"action_mask": np.array([[1, 0], [1, 1]], np.int8)}

    def close(self):
        self.closed += 1


def test_a_mask_of_several_choices_is_none_and_an_environment_is_closed_once():
    env = Several()
    game = GymnasiumGame(env, "several")
    game.reset(0)
    assert not game.spec.behaviors[0].actions.masked and MASKS not in observation_arrays(game.spec)
    game.close()
    game.close()
    assert env.closed == 1


def test_an_environment_s_own_part_of_a_vector_s_info_is_what_it_told():
    infos = {"a": np.array([1, 2]), "_a": np.array([False, True]), "b": {"c": np.array([3, 4])}}
    assert [_info_of(infos, row) for row in (0, 1)] == [{"b": {"c": 3}}, {"a": 2, "b": {"c": 4}}]


def test_spaces_that_begin_elsewhere_or_differ_in_one_end_only_are_told_apart():
    boxes = spaces.MultiDiscrete([2, 3], start=[5, -1])
    out = {"obs": np.zeros((1, 5), np.float32)}
    ObservationReader(boxes).write_one(np.array([6, 1]), out)
    assert out["obs"].tolist() == [[0, 1, 0, 0, 1]]
    assert ActionWriter(boxes).one(np.float32([1, 2])).tolist() == [6, 1]
    uneven = ActionWriter(spaces.Box(np.float32([0, 0]), np.float32([1, 2])))
    assert uneven.spec.parts == (Continuous(1, 0, 1), Continuous(1, 0, 2))
    assert ObservationReader(spaces.Box(0, 255, (3, 6, 4), np.uint8)).specs[0].shape == (3, 6, 4)  # channels first
    assert [ObservationReader(spaces.Discrete(n)).specs[0].sparse for n in (2, 3)] == [False, True]


def test_what_no_network_can_read_or_write_is_refused():
    with pytest.raises(EnvError, match="neither numbers, an image nor a choice"):
        ObservationReader(spaces.Text(5))
    with pytest.raises(EnvError, match="expected one made of Discrete"):
        ActionWriter(spaces.Text(5))
    with pytest.raises(EnvError, match="Gymnasium cannot make 'NoSuch-v0'"):
        make_game(MAKE, TRUST, id="NoSuch-v0")
    with pytest.raises(EnvError, match=r"No module named 'mygamee'.*; check PYTHONPATH"):
        make_game(MAKE, Trust(frozenset({"mygamee"})), id="mygamee:Walk-v0")
    game = make_game(MAKE, TRUST, id="CartPole-v1")
    with pytest.raises(EnvError, match="render_mode: rgb_array"):
        game.render()
    game.close()


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        (lambda: np.zeros(1, np.float32), r"Odd-v0: reset has to return \(observation, info\); found ndarray"),
        (lambda: 1 // 0, r"(?s)the game cannot be made or started; it raised:.*ZeroDivisionError"),
        (lambda: 1 + "0", r"(?s)the game cannot be made or started; it raised:.*return begun\(\).*TypeError"),
    ],
    ids=["of the old API", "raises", "raises what a wrong option raises"],
)
def test_an_environment_that_cannot_begin_is_told_of(begun, told):
    class Odd(gymnasium.Env):
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return begun()

    gymnasium.register("Odd-v0", Odd, disable_env_checker=True)
    try:
        with pytest.raises(EnvError, match=told):
            _ = GameSource(MAKE, {"id": "Odd-v0"}, TRUST).spec
    finally:
        del gymnasium.registry["Odd-v0"]
