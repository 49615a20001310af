"""Duels: the referee against players that tell what they saw, models as files, and one real match of seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import add_game
from typer.testing import CliRunner

from palus.arena.models.players import find_players, load_player
from palus.arena.models.policies import OnnxPlayer, RandomPlayer, played_behaviors
from palus.arena.referee.games import GAMES, source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Film
from palus.arena.referee.result import MatchResult, summarize
from palus.arena.study.tournament import rank_players
from palus.cli import app
from palus.config.appo import AppoNetworkSettings
from palus.envs.arena_game import ArenaGame
from palus.envs.game import GameStep, points_of
from palus.errors import EnvError, ModelError
from palus.export.policy_file import PolicyFile, write_policy
from palus.nn.network import Network
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

LENGTH = 6
DUEL = "doom_duel"


class Shooting:
    """Two agents; every choice of 1 is a frag. The last two observed numbers tell the agent and the decision."""

    lost = False

    def __init__(self) -> None:
        self.spec = GameSpec.alike("shooting", (ObservationSpec("o", (2,)),), ActionSpec((Discrete(2), Discrete(3))), 2)
        self.active = np.ones(2, np.bool_)
        self.recorder: Any = None

    def reset(self, seed: int) -> None:
        self.decision, self.frags = 0, np.zeros(2)

    def observe(self, out: Mapping[str, Any]) -> None:
        out["o"][:] = [[0, self.decision], [1, self.decision]]

    def observe_final(self, out: Mapping[str, Any]) -> None:
        self.observe(out)

    def step(self, actions: Any) -> GameStep:
        if self.lost:
            raise EnvError("the engine is lost")
        self.decision += 1
        self.frags += actions[:, 0]
        over = np.full(2, self.decision == LENGTH)
        for _ in range(2 if self.recorder else 0):
            self.recorder(self.render())
        stats = {i: {"frags": float(self.frags[i])} for i in range(2)} if over.all() else {}
        return GameStep(
            np.zeros(2, np.float32),
            over,
            np.zeros(2, np.bool_),
            bool(over.all()),
            stats,
            points_of(self.frags.tolist()),
        )

    def render(self) -> Any:
        return np.full((2, 2, 3), self.decision, np.uint8)

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def third_game(monkeypatch: pytest.MonkeyPatch) -> None:
    game = ArenaGame("shooting", (), score_stat="frags", side_by_side=1, filmed=True)
    add_game(monkeypatch, game, Shooting)


def play_duels(a: Any, b: Any, pairs: int, seed: int, **more: Any) -> tuple[MatchResult, ...]:
    return play_pairs(a, b, pairs, seed, env_id="shooting", **more)


class Shooter:
    """Shoots with a fixed probability and remembers how often it was asked."""

    state_size = 1
    sha256 = None

    def __init__(self, name: str, probability: float) -> None:
        self.name, self.probability = name, probability

    def answer(self, observations: Mapping[str, Any], states: Any, masks: Any = None) -> Any:
        assert observations["o"].shape == (1, 2)
        assert states[0, 0] == observations["o"][0, 1], "memory belongs to one side and one match"
        p = self.probability
        return np.array([[1 - p, p, 0.2, 0.3, 0.5]], np.float32), states + 1


def test_the_one_with_more_frags_wins_on_both_sides() -> None:
    pictures: list[Any] = []
    film = Film(lambda number, picture: pictures.append((number, int(picture[0, 0, 0]))), every_tick=True)
    results = play_duels(Shooter("a", 1.0), Shooter("b", 0.0), 2, 7, recorder=film)
    assert [(r.result, r.score, r.leg) for r in results] == [("win1", (6, 0), 1), ("win2", (0, 6), 2)] * 2
    assert [r.sides[0].entity.repo for r in results] == ["a", "b", "a", "b"]
    assert results[0].unit_id == results[1].unit_id != results[2].unit_id
    assert summarize(results).score == 1.0
    drawn = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]  # the start, then both tics of every decision
    assert pictures == [(match, decision) for match in range(4) for decision in drawn]
    assert results[0].sides[0].entropy == pytest.approx(-(0.2 * np.log(0.2) + 0.3 * np.log(0.3) + 0.5 * np.log(0.5)))


def test_one_game_plays_all_matches_and_begins_no_more_than_these(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Shooting] = []
    begun: list[int] = []
    monkeypatch.setattr(Shooting, "close", lambda game: made.append(game))
    reset = Shooting.reset
    monkeypatch.setattr(Shooting, "reset", lambda game, seed: (begun.append(seed), reset(game, seed)))
    play_duels(Shooter("a", 1.0), Shooter("b", 0.0), 2, 7)
    assert len(made) == 1 and len(begun) == 4
    assert begun[0] == begun[1] != begun[2] == begun[3]


def test_draws_are_repeatable_and_greedy_play_takes_the_likeliest() -> None:
    again = [play_duels(Shooter("a", 0.6), Shooter("b", 0.4), 3, 7) for _ in range(2)]
    assert again[0] == again[1]
    greedy = play_duels(Shooter("a", 0.6), Shooter("b", 0.4), 1, 7, mode="greedy")
    assert [r.score for r in greedy] == [(6, 0), (0, 6)]
    even = play_duels(Shooter("a", 1.0), Shooter("b", 1.0), 1, 7)
    assert [r.result for r in even] == ["draw", "draw"]


def test_no_probabilities_forfeit_and_a_lost_engine_voids(monkeypatch: pytest.MonkeyPatch) -> None:
    results = play_duels(Shooter("a", float("nan")), Shooter("b", 0.5), 1, 7)
    assert [(r.result, r.cause) for r in results] == [("forfeit1", "non_finite"), ("forfeit2", "non_finite")]

    monkeypatch.setattr(Shooting, "lost", True)
    voids = play_duels(Shooter("a", 1.0), Shooter("b", 0.0), 1, 7)
    assert [(r.result, r.cause, r.points) for r in voids] == [("void", "engine", None)] * 2


def test_duels_that_are_stopped_leave_whole_pairs() -> None:
    played: list[int] = []
    players = (Shooter("a", 1.0), Shooter("b", 0.0))
    results = play_duels(*players, 5, 7, progress=played.append, stopped=lambda: len(played) >= 3)
    assert [result.leg for result in results] == [1, 2]


def test_a_round_robin_of_duels_ranks_the_better_shot_first() -> None:
    shooters = [Shooter("poor", 0.2), Shooter("good", 0.9), Shooter("fair", 0.5)]
    board = rank_players(shooters, 4, 0, env_id="shooting")
    assert [s.name for s in board.standings] == ["good", "fair", "poor"]


def _network(spec: GameSpec) -> Network:
    settings = AppoNetworkSettings(hidden_units=8, memory={"memory_size": 8})
    return Network(spec.behaviors[0], settings, torch.Generator().manual_seed(1))


def _export(path: Path, spec: GameSpec) -> Path:
    path.write_bytes(_network(spec).onnx().SerializeToString())
    return path


def _train(folder: Path, spec: GameSpec) -> None:
    """A run as training leaves it: without an ONNX file."""
    (folder / DUEL).mkdir(parents=True)
    (folder / "configuration.yaml").write_text(
        f"behaviors: {{{DUEL}: {{trainer_type: appo}}}}\npalus: {{env: {DUEL}}}\n"
    )
    write_policy(folder / DUEL / "policy.npz", PolicyFile.of(_network(spec), spec, DUEL, 1000))


def test_an_exported_policy_plays_and_another_games_is_refused(tmp_path: Path) -> None:
    spec = Shooting().spec
    other = GameSpec.alike("other", (ObservationSpec("o", (3,)),), ActionSpec((Discrete(2),)))
    _export(tmp_path / "mine.onnx", spec)
    _export(tmp_path / "other.onnx", other)
    player = load_player(str(tmp_path / "mine.onnx"), spec)
    assert player.state_size == 8
    results = play_duels(player, RandomPlayer(*played_behaviors(spec)), 1, 3)
    assert {r.cause for r in results} == {"time_limit"}
    with pytest.raises(
        ModelError,
        match=r"takes o \[batch, 3\] float32, recurrent_in \[batch, 8\] .*; shooting needs o \[batch, 2\] float32",
    ):
        OnnxPlayer(tmp_path / "other.onnx", *played_behaviors(spec))
    found, rejected = find_players(tmp_path, spec)
    assert [p.name for p in found] == ["mine"]
    assert len(rejected) == 1


def test_a_duel_in_doom_is_filmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")
    pytest.importorskip("av", reason="the extra `video` is not installed")
    short = replace(GAMES[DUEL], options={**GAMES[DUEL].options, "timelimit": 0.05})
    monkeypatch.setitem(GAMES, DUEL, short)  # type: ignore[arg-type]
    _train(tmp_path / "run", source_of(DUEL).spec)
    words = ["match", str(tmp_path / "run"), "random", "--game", "doom_duel", "--pairs", "1", "--json"]
    result = CliRunner().invoke(app, [*words, "--replay", str(tmp_path / "duel.mp4")])
    assert result.exit_code == 0, result.output
    assert '"pairs": 1' in result.output
    assert (tmp_path / "duel.mp4").stat().st_size > 10_000
