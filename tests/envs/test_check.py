"""`check_env` passes every built-in game and names the fault of broken ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from palus.envs import BUILT_IN, GameSource, make
from palus.envs.check import check_env
from palus.envs.soccer.env import Soccer
from palus.envs.toy import DuelToy, MenuToy, RescueToy
from palus.errors import EnvError


@pytest.mark.parametrize("env_id", [name for name in BUILT_IN if GameSource(name).prefers_batch])
def test_built_in_games_keep_the_contract(env_id):
    check_env(make(env_id, 5), make=lambda n: make(env_id, n))


def test_soccer_keeps_the_contract_over_restarts():
    check_env(make("SoccerTwos", 4, max_steps=23, ball_touch=1.0), decisions=30)


class BlindInCompactForm(Soccer):
    def __init__(self, num_matches):
        super().__init__("SoccerTwos", num_matches)

    def observe(self, behavior, rows, out):
        super().observe(behavior, rows, out)
        if "obs_1 distances" in out:
            out["obs_1 distances"][:] = 0.5


class KnowsNoCompactForm(DuelToy):
    def __init__(self, num_matches):
        super().__init__(num_matches)
        (spec,) = self.spec.behaviors
        (seen,) = spec.observations
        self.spec = replace(self.spec, behaviors=(replace(spec, observations=(replace(seen, rays=1),)),))


class SharedRandomness(DuelToy):
    def reset(self, seeds):
        super().reset(np.full_like(seeds, seeds[0]))


class ForgetsItsState(DuelToy):
    def get_state(self):
        return super().get_state() | {"_drawn": np.zeros_like(self._drawn)}


class WritesSkippedRows(DuelToy):
    def observe(self, behavior, rows, out):
        super().observe(behavior, np.abs(rows), out)


class SpeaksNaN(DuelToy):
    def _view(self, behavior):
        view = super()._view(behavior)
        view["obs_0"][-1, 1, 3] = np.nan
        return view


class LeavesNumbersUnwritten(DuelToy):
    def observe(self, behavior, rows, out):
        kept = out["obs_0"][:, 1].copy()
        super().observe(behavior, rows, out)
        out["obs_0"][:, 1] = kept


class NothingToChoose(MenuToy):
    def _view(self, behavior):
        view = super()._view(behavior)
        view["action_masks"][1] = False
        return view


class EndsTwice(DuelToy):
    def step(self, actions):
        step = super().step(actions)
        step.truncated[:] = step.terminated
        return step


class LeavesWithoutEnding(RescueToy):
    def step(self, actions):
        step = super().step(actions)
        step.terminated[:, 0] = False
        return step


class PaysTheDeparted(RescueToy):
    def step(self, actions):
        step = super().step(actions)
        step.group_reward[:, 0] = step.group_reward[:, 1]
        return step


class TooLong(DuelToy):
    def __init__(self, num_matches):
        super().__init__(num_matches)
        object.__setattr__(self.spec, "max_decisions", 3)


class FloatFlags(DuelToy):
    def step(self, actions):
        step = super().step(actions)
        object.__setattr__(step, "match_over", step.match_over.astype(np.float32))
        return step


class ObeysTheDeparted(RescueToy):
    def step(self, actions):
        self._right |= (actions[0][:, 0, 0] == 1) & ~self.active[:, 0]
        return super().step(actions)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (BlindInCompactForm, "rays of obs_1 in compact form are others"),
        (KnowsNoCompactForm, "leave `ObservationSpec.rays` at 0"),
        (SharedRandomness, "a slot must depend on its own seed"),
        (ForgetsItsState, "get_state, then set_state"),
        (WritesSkippedRows, "wrote rows it was not given"),
        (SpeaksNaN, "non-finite numbers for match 2, agent right"),
        (LeavesNumbersUnwritten, "left numbers of obs_0 unwritten"),
        (NothingToChoose, "match 1: the mask of agent guest forbids every choice of branch 0"),
        (EndsTwice, "agent left is terminated and truncated at once"),
        (LeavesWithoutEnding, "agent pilot became inactive without having ended"),
        (PaysTheDeparted, "agent pilot got a group reward without being active"),
        (TooLong, "longer than max_decisions = 3"),
        (FloatFlags, r"step.match_over is float32 \(3,\); expected bool \(3,\)"),
        (ObeysTheDeparted, "inactive agents' actions aside"),
    ],
)
def test_broken_games_are_named(broken, message):
    with pytest.raises(EnvError, match=message):
        check_env(broken(3))


def test_unknown_names_get_a_suggestion():
    with pytest.raises(EnvError, match="did you mean SoccerTwos"):
        make("SocerTwos", 1)
    with pytest.raises(EnvError, match="gravity: no such option; there are ball_touch, kick_point"):
        make("SoccerTwos", 1, gravity=3)
