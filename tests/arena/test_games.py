"""The arena names no game: what differs between games is declared in their own folders."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers import Constant

from palus import envs
from palus.arena.models.players import load_player
from palus.arena.referee.games import GAMES
from palus.arena.referee.match import play_pairs
from palus.envs.arena_game import ArenaGame

ARENA = Path(__file__).parents[2] / "src" / "palus" / "arena"


def test_no_module_of_the_arena_imports_or_names_a_game_or_what_happens_in_one() -> None:
    events = {event for game in GAMES.values() if game.layout is not None for event in game.layout.events}
    own = {"goal", "kick"} | events | {game.score_stat for game in GAMES.values() if game.score_stat}
    for path in sorted(ARENA.rglob("*.py")):
        tree = ast.parse(path.read_text(), str(path))
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(("palus.envs.soccer", "palus.envs.doom")), path
            elif isinstance(node, ast.Attribute):
                assert node.attr not in ("trace", "trace_length", "kick", "agent_pos", "ball_pos"), (
                    f"{path}:{node.lineno}"
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                assert not any(name in node.value for name in GAMES), f"{path}:{node.lineno}"
                assert node.value not in own, f"{path}:{node.lineno}"


def test_a_game_that_declares_its_name_is_matched_and_says_who_won(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = envs.make("DuelToy", 1).spec
    monkeypatch.setitem(GAMES, "DuelToy", ArenaGame("DuelToy", ()))  # type: ignore[arg-type]
    (behavior,) = spec.behaviors
    first = Constant("first", [float(i == 0) for size in behavior.branches for i in range(size)])
    results = play_pairs(first, load_player("random", spec), 4, seed=0, env_id="DuelToy")
    assert {r.result for r in results} >= {"win1", "win2"}
    assert all(r.score == {"win1": (1, 0), "win2": (0, 1)}.get(r.result, (0, 0)) for r in results)
    assert results == play_pairs(first, load_player("random", spec), 4, seed=0, env_id="DuelToy", num_parallel=3)
