"""Parameters drawn at random: of which distribution, and one for each match as it begins."""

import numpy as np
import pytest

from palus.config import load_run
from palus.config.environment import Value
from palus.envs.drawing import MatchParameters, draw


def sampler(kind: str, parameters: str, seed: int = 7) -> Value:
    text = f"{{p: {{sampler_type: {kind}, sampler_parameters: {{{parameters}, seed: {seed}}}}}}}"
    return load_run("debug", [f"environment_parameters={text}"]).lessons()["p"][0].value


def drawn(value: Value, n: int = 4000) -> np.ndarray:
    return np.array([draw(value, k) for k in range(n)])


def test_every_sampler_draws_from_its_distribution() -> None:
    uniform = drawn(sampler("uniform", "min_value: 2, max_value: 4"))
    assert uniform.min() >= 2 and uniform.max() <= 4 and uniform.mean() == pytest.approx(3, abs=0.05)
    gaussian = drawn(sampler("gaussian", "mean: 5, st_dev: 2"))
    assert gaussian.mean() == pytest.approx(5, abs=0.15) and gaussian.std() == pytest.approx(2, abs=0.1)
    ranges = drawn(sampler("multirangeuniform", "intervals: [[0, 1], [10, 13]]"))
    assert (((ranges >= 0) & (ranges <= 1)) | ((ranges >= 10) & (ranges <= 13))).all()
    assert (ranges > 5).mean() == pytest.approx(0.75, abs=0.03)  # in proportion to their lengths
    assert set(drawn(sampler("multirangeuniform", "intervals: [[1, 1], [2, 2]]"), 50)) == {1.0, 2.0}
    assert draw(sampler("constant", "value: 3"), 1) == draw(3.0) == 3.0


def test_a_seed_repeats_and_another_does_not() -> None:
    one, other = sampler("uniform", "min_value: 0, max_value: 1"), sampler("uniform", "min_value: 0, max_value: 1", 8)
    assert draw(one, 1, 2) == draw(one, 1, 2) != draw(one, 1, 3)
    assert draw(one, 1, 2) != draw(other, 1, 2)


class Heard:
    num_matches = 3

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}

    def set_parameters(self, parameters):
        self.values |= {name: np.broadcast_to(value, 3).copy() for name, value in parameters.items()}


def test_a_match_keeps_its_draw_until_it_ends_and_constants_change_at_once() -> None:
    game, uniform = Heard(), sampler("uniform", "min_value: 0, max_value: 1")
    parameters = MatchParameters(game)
    parameters.change({"p": uniform, "q": 2.0})
    parameters.begin(range(3))
    first = game.values["p"]
    assert len(set(first)) == 3
    parameters.begin([1])
    second = game.values["p"]
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, True]
    parameters.change({"p": sampler("uniform", "min_value: 5, max_value: 6"), "q": 3.0})
    np.testing.assert_array_equal(game.values["p"], second)
    np.testing.assert_array_equal(game.values["q"], [3.0] * 3)
    parameters.begin([2])
    assert (game.values["p"] > 5).tolist() == [False, False, True]
    again, other = Heard(), game.values["p"]
    resumed = MatchParameters(again)
    resumed.load_state_dict(parameters.state_dict())
    np.testing.assert_array_equal(again.values["p"], other)


def test_what_a_match_draws_depends_on_its_number_in_the_run_and_how_often_it_began() -> None:
    game, uniform = Heard(), sampler("uniform", "min_value: 0, max_value: 1")
    parameters = MatchParameters(game, first=5)
    parameters.change({"p": uniform})
    assert game.values["p"].tolist() == [draw(uniform, number, 0) for number in (5, 6, 7)]
    for match in (1, 2, 1):
        parameters.begin([match])
    assert game.values["p"].tolist() == [draw(uniform, 5, 0), draw(uniform, 6, 2), draw(uniform, 7, 1)]
