"""Duels between strangers' models: vetted with pictures and memory, played in locked processes, filmed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from duel_models import LENGTH, SPEC, Shooting, model
from helpers import add_game
from units import LIMITS

from palus.arena.locked.frames import Rows, Task
from palus.arena.locked.play import play_unit
from palus.arena.locked.probe import probe_rows
from palus.arena.locked.sandbox import Sandbox
from palus.arena.locked.unit import Unit
from palus.arena.locked.vet import Vetting, vet
from palus.arena.models.entity import Entity
from palus.arena.referee import match as referee
from palus.envs.arena_game import ArenaGame
from palus.types import ActionSpec, BehaviorSpec, Discrete

av = pytest.importorskip("av", reason="the extra `video` is not installed")

ENV = SPEC.env_id


class Filmed(ArenaGame):
    """Ends its engines when it is told to."""

    def kill(self, env: Any) -> None:
        for game in env.games:
            game.kill()


FILMED = Filmed(ENV, (), score_stat="frags", side_by_side=1, filmed=True, max_p99_ms=40.0)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with contextlib.closing(Sandbox()) as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def game(monkeypatch: pytest.MonkeyPatch) -> Shooting:
    """A small game in Doom's place: no engine is needed to hold models in."""
    game = Shooting()
    add_game(monkeypatch, FILMED, lambda: game)
    return game


def check(data: bytes, sandbox: Sandbox) -> Vetting:
    return vet(contender("ann/a", data), ENV, limits=LIMITS, sandbox=sandbox)


def contender(repo: str, data: bytes | None) -> Entity:
    sha256 = hashlib.sha256(data or b"random").hexdigest()
    return (
        Entity(sha256, repo, "0" * 40) if data is None else Entity(sha256, repo, "", ((ENV, sha256),), models=(data,))
    )


def test_an_agent_that_sees_pictures_and_remembers_passes_and_is_described(sandbox: Sandbox) -> None:
    for memory in (True, False):
        found = check(model(memory=memory), sandbox)
        assert found.refusal is None
        assert found.details["entropy"] == pytest.approx(np.log(2) + np.log(3))
        assert 0 < found.details["p99_ms"] < 40
        assert found.details["opset"] == 9 and "limits" in found.details["isolation"]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (
            model(shape=(3, 24, 32)),
            "wrong-contract",
            r"obs \[batch, 3, 24, 32\] uint8.*shooting needs obs \[batch, 3, 12, 16\] uint8",
        ),
        (
            model(state_out=2),
            "wrong-outputs",
            r"recurrent_out \[batch, 2\]; shooting needs .*recurrent_out \[batch, 3\]",
        ),
        (model(nan_from=0.5), "nan-output", "NaN or infinity to .* of 200 observations"),
        (b"junk", "not-onnx", "not an ONNX model"),
    ],
)
def test_an_agent_that_does_not_fit_is_refused_with_a_sentence(
    sandbox: Sandbox, data: bytes, code: str, words: str
) -> None:
    refusal = check(data, sandbox).refusal
    assert refusal is not None and refusal.code == code
    assert re.search(words, refusal.sentence), refusal.sentence
    assert refusal.sentence[0].isupper() and refusal.remedy.endswith(".")


def test_questions_survive_the_way_through_the_socket() -> None:
    rows = Rows(SPEC.behaviors[0], 4)
    questions = probe_rows(rows, np.random.default_rng(0))
    observations, states, masks = rows.unpack(questions)
    assert questions.shape == (200, 3 * 12 * 16 + 4 * 2 + 4 * 4)
    assert observations["obs"].shape == (200, 3, 12, 16) and observations["measurements"].dtype == np.float32
    assert masks is None
    assert (states[:100] == 0).all() and (np.abs(states[100:]) <= 1).all()
    assert np.array_equal(rows.pack(observations, states), questions)
    assert len(np.unique(observations["obs"][50:60].reshape(10, -1), axis=1)[0]) == 1  # pictures of one grey


def test_masks_travel_with_the_questions() -> None:
    actions = ActionSpec((Discrete(2), Discrete(3)), masked=True)
    rows = Rows(BehaviorSpec("Masked", SPEC.behaviors[0].observations, actions), 2)
    questions = probe_rows(rows, np.random.default_rng(0))
    observations, states, masks = rows.unpack(questions)
    assert masks is not None and masks.shape == (200, 5) and masks[:, [0, 2]].all() and not masks.all()
    assert np.array_equal(rows.pack(observations, states, masks), questions)
    task = Task(behaviors=(rows.behavior, SPEC.behaviors[0]), examine_up_to_ms=2.0)
    assert Task.model_validate_json(task.model_dump_json()) == task


def test_a_duel_is_won_by_frags_on_both_sides_and_filmed(sandbox: Sandbox, game: Shooting) -> None:
    eager, idle = contender("ann/eager", model(eagerness=50.0)), contender("bob/idle", model(eagerness=-50.0))
    outcome = play_unit(Unit(ENV, 7, (eager, idle)), LIMITS, sandbox=sandbox)
    assert [(r.result, r.cause, r.score) for r in outcome.results] == [
        ("win1", "time_limit", (LENGTH, 0)),
        ("win2", "time_limit", (0, LENGTH)),
    ]
    assert [side.entity.sha256 for side in outcome.results[1].sides] == [idle.sha256, eager.sha256]
    assert outcome.results[0].duration_ticks == 2 * LENGTH and outcome.results[0].final_state is None
    assert "limits" in outcome.isolation and outcome.failures == ("", "")
    assert [match.actions for match in outcome.matches] == [b"", b""] and game.closed
    for video in (match.replay for match in outcome.matches):
        with av.open(io.BytesIO(video)) as container:
            assert sum(1 for _ in container.decode(container.streams.video[0])) == LENGTH + 1


def test_a_model_that_answers_nan_forfeits_to_a_player_of_the_house(sandbox: Sandbox) -> None:
    sick, house = contender("eve/sick", model(nan_from=3.5)), contender("palus/random", None)
    outcome = play_unit(Unit(ENV, 7, (sick, house)), LIMITS, sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("forfeit1", "non_finite"), ("forfeit2", "non_finite")]
    assert outcome.results[0].duration_ticks == 2 * 4  # its memory counts the questions: four were answered
    assert all(match.replay for match in outcome.matches)


def test_a_model_that_cannot_be_opened_forfeits_and_says_why(sandbox: Sandbox) -> None:
    outcome = play_unit(
        Unit(ENV, 7, (contender("ann/a", model()), contender("eve/junk", b"junk"))), LIMITS, sandbox=sandbox
    )
    assert [(r.result, r.cause) for r in outcome.results] == [("forfeit2", "invalid"), ("forfeit1", "invalid")]
    assert outcome.failures[0] == "" and "not-onnx" in outcome.failures[1]


def test_an_engine_that_fails_voids_the_pair(sandbox: Sandbox, game: Shooting) -> None:
    game.fails_at = 2
    house = contender("palus/random", None)
    outcome = play_unit(Unit(ENV, 7, (house, contender("ann/a", model()))), LIMITS, sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("void", "engine")] * 2


def test_a_match_that_never_ends_is_ended_by_killing_its_engine(
    sandbox: Sandbox, game: Shooting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hangs until it is killed; then its game says that it is lost."""

    killed = threading.Event()

    def hang(_actions: object) -> None:
        assert killed.wait(60)
        game.fails_at = 0
        return Shooting.step(game, np.zeros((2, 2)))  # type: ignore[return-value]

    monkeypatch.setattr(game, "step", hang)
    monkeypatch.setattr(game, "kill", killed.set, raising=False)
    monkeypatch.setattr(referee, "PATIENCE_S", 0.2)
    monkeypatch.setattr(referee, "PATIENCE", 0.0)
    house = contender("palus/random", None)
    outcome = play_unit(Unit(ENV, 7, (house, house)), LIMITS, sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("void", "engine")] * 2
