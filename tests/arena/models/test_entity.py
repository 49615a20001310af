"""The rated entity: what jobs say of it, now and before it could be several files."""

from __future__ import annotations

import pytest

from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity, house_player
from palus.errors import ArenaError

TEAM = Entity("t" * 64, "ann/team", "1" * 40, (("Keeper", "k" * 64), ("Striker", "s" * 64)))


def test_an_order_that_was_queued_while_entities_were_single_files_is_played_by_the_same_two() -> None:
    bot = house_player("random", "SoccerTwos")
    model = Entity("a" * 64, "ann/a", "1" * 40, (("SoccerTwos", "a" * 64),))
    order = Unit("SoccerTwos", 1, (model, bot), season=1, rated=True)
    queued = order.to_payload()
    queued["contenders"] = [
        {"sha256": side.sha256, "repo": side.repo, "owner": side.owner, "revision": side.revision, **more}
        for side, more in ((model, {"file": "SoccerTwos.onnx", "house": None}), (bot, {"file": "", "house": "random"}))
    ]
    read = Unit.from_payload(queued)
    assert read == order and tuple(side.house for side in read.contenders) == (None, "random")
    assert read.unit_id == "ad4ab4575ea48474"


def test_bytes_are_read_for_each_behavior_and_neither_written_nor_compared() -> None:
    loaded = TEAM.with_models(lambda sha256: sha256[:1].encode())
    assert loaded.models == (b"k", b"s")
    assert loaded == TEAM == Entity.from_json(loaded.to_json())
    assert loaded.models_for(["Striker", "Keeper"]) == [b"s", b"k"]
    for others in (["Striker"], ["Striker", "Goalie"], ["Striker", "Keeper", "Goalie"]):
        with pytest.raises(ArenaError, match=r"ann/team: brings 2 models; whoever plays here brings Striker\.onnx"):
            loaded.models_for(others)
    with pytest.raises(ArenaError, match="ann/team: brings 0 models"):
        TEAM.models_for(["Striker", "Keeper"])
