"""`.demo` files: bytes by hand, there and back, and whatever is wrong with one said in words."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from palus import envs
from palus.cli import app
from palus.envs.protocol import observe_slots
from palus.errors import DemonstrationError
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, demonstrated, read_demonstrations, write_demonstrations
from palus.unity.messages import DemonstrationMeta

SPEC = BehaviorSpec("Aim", (ObservationSpec("eye", (2,)),), ActionSpec((Continuous(1, -2.0, 4.0), Discrete(3))))


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def delimited(message: bytes) -> bytes:
    return bytes([len(message)]) + message


def pair(seen: tuple[float, float], action: tuple[float, int], *, reward: float = 0.0, done: bool = False) -> bytes:
    """One record as the wire has it: AgentInfoProto 7 reward, 8 done, 13 observations; AgentActionProto 6 and 7."""
    shape, properties, name = field(1, b"\x02"), field(6, b"\x01"), field(8, b"eye")
    observation = shape + field(4, field(1, floats(*seen))) + properties + name
    info = (b"\x3d" + floats(reward) if reward else b"") + (b"\x40\x01" if done else b"") + field(13, observation)
    return delimited(field(1, info) + field(2, field(6, floats(action[0])) + field(7, bytes([action[1]]))))


META = delimited(b"\x08\x01" + field(2, b"two") + b"\x18\x05\x20\x02" + b"\x2d" + floats(1.5))
BRAIN = delimited(field(7, b"Aim") + b"\x40\x01" + field(9, b"\x08\x01\x10\x01" + field(3, b"\x03")))
TWO_EPISODES = (
    META.ljust(33, b"\0")
    + BRAIN
    + pair((1, 2), (-1, 0))
    + pair((3, 4), (0, 1), reward=0.5)
    + pair((9, 9), (0, 1), reward=2.0, done=True)
    + pair((5, 6), (1, 2))
    + pair((5, 6), (1, 2), reward=0.5, done=True)
)
"""Two decisions and an end, where a last observation is told; one decision and an end, where none is."""


def episodes() -> list[ExpertEpisode]:
    return [
        ExpertEpisode(
            {"eye": np.float32([[1, 2], [3, 4]])}, np.float32([[-2, 0], [1, 1]]), None, np.float32([0.5, 1]),
            np.float32([0, 1]), False, {"eye": np.float32([9, 9])},
        ),
        ExpertEpisode(
            {"eye": np.float32([[5, 6]])}, np.float32([[4, 2]]), None, np.float32([0.5]), np.float32([0]), False
        ),
    ]  # fmt: skip


def test_bytes_by_hand_are_read(tmp_path: Path) -> None:
    """-1..1 are the game's -2..4; what came of a decision stands in the next record; ends are no decisions."""
    (tmp_path / "two.demo").write_bytes(TWO_EPISODES)
    found = read_demonstrations(tmp_path, SPEC)
    assert found.observations["eye"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found.actions.tolist() == [[-2, 0], [1, 1], [4, 2]]
    assert found.rewards.tolist() == [0.5, 2.0, 0.5]
    assert found.ended.tolist() == [False, True, True]


def test_before_a_run_heads_and_first_records_tell_whether_demonstrations_fit(tmp_path: Path) -> None:
    (tmp_path / "a.demo").write_bytes(TWO_EPISODES)
    shown = demonstrated(tmp_path, None)
    assert (shown.name, shown.observations[0].shape, shown.actions.branches) == ("Aim", (2,), (3,))
    assert demonstrated(tmp_path, SPEC) is SPEC
    wide = replace(SPEC, observations=(ObservationSpec("eye", (4,)),))
    with pytest.raises(DemonstrationError, match=r"a\.demo: observations \[\(2,\)\]; Aim has \[\(4,\)\], so give"):
        demonstrated(tmp_path, wide)
    seen = {"eye": np.zeros((1, 4), np.float32)}
    write_demonstrations(tmp_path / "b.demo", wide, "Aim", [replace(episodes()[1], observations=seen)])
    with pytest.raises(DemonstrationError, match=r"b\.demo: observations \[\(4,\)\]; Aim has \[\(2,\)\]"):
        demonstrated(tmp_path, None)
    with pytest.raises(DemonstrationError, match=r"a\.demo: of behavior Aim, with 1 continuous actions"):
        demonstrated(tmp_path, replace(SPEC, actions=ActionSpec((Discrete(3),))))


def test_what_is_written_are_these_bytes(tmp_path: Path) -> None:
    own = [replace(e, rewards=e.rewards + e.group_rewards, group_rewards=0 * e.rewards) for e in episodes()]
    assert write_demonstrations(tmp_path / "two.demo", SPEC, "Aim", own) == (3, 2)
    assert (tmp_path / "two.demo").read_bytes() == TWO_EPISODES


def test_pictures_lists_and_masks_come_back_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seen = (ObservationSpec("eye", (1, 4, 5), "uint8"), ObservationSpec("others", (3, 2)), ObservationSpec("own", (2,)))
    spec = BehaviorSpec("All", seen, ActionSpec((Discrete(3), Continuous(2), Discrete(2)), masked=True))
    rows = {
        "eye": rng.integers(0, 256, (40, 1, 4, 5), np.uint8),
        "others": rng.normal(size=(40, 3, 2)).astype(np.float32),
        "own": rng.normal(size=(40, 2)).astype(np.float32),
    }
    actions = np.concatenate([rng.integers(0, 3, (40, 1)), rng.normal(size=(40, 2)), rng.integers(0, 2, (40, 1))], 1)
    actions = actions.astype(np.float32)
    masks = np.ones((40, 5), np.bool_)
    episode = ExpertEpisode(rows, actions, masks, np.ones(40, np.float32), np.ones(40, np.float32), True)
    write_demonstrations(tmp_path / "a.demo", spec, "All", [episode])
    write_demonstrations(tmp_path / "b.demo", spec, "All", [episode])
    found = read_demonstrations(tmp_path, spec)
    for name, array in rows.items():
        assert found.observations[name].dtype == array.dtype
        assert np.array_equal(found.observations[name], np.concatenate([array, array]))
    assert np.array_equal(found.actions, np.concatenate([actions, actions]))
    assert np.flatnonzero(found.ended).tolist() == [39, 79] and found.rewards.tolist() == [2.0] * 80


def test_long_names_and_large_numbers_leave_room_for_the_behavior(tmp_path: Path) -> None:
    episode = episodes()[0]
    many = (episode for _ in range(6000))
    path = tmp_path / "a-name-of-much-more-than-sixteen-letters.demo"
    write_demonstrations(path, SPEC, "Aim", many)
    assert len(read_demonstrations(path, SPEC)) == 12000
    data = path.read_bytes()
    meta = DemonstrationMeta.FromString(data[1 : 1 + data[0]])
    assert (meta.number_steps, meta.number_episodes, meta.mean_reward) == (18000, 6000, 2.5)
    assert meta.demonstration_name == "a-name-of-much-m"


def test_releases_before_hybrid_actions_are_read(tmp_path: Path) -> None:
    spec = BehaviorSpec("Old", SPEC.observations, ActionSpec((Discrete(3), Discrete(2))))
    brain = delimited(field(3, b"\x03\x02") + field(7, b"Old"))
    observation = field(1, b"\x02") + field(4, field(1, floats(1, 2)))
    record = delimited(field(1, field(13, observation)) + field(2, field(1, floats(2, 1))))
    (tmp_path / "old.demo").write_bytes(delimited(b"\x18\x02").ljust(33, b"\0") + brain + record + record)
    assert read_demonstrations(tmp_path / "old.demo", spec).actions.tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "its head, at byte 0 of 0, is no message"),
        (b"\x89PNG\r\n\x1a\n" * 30, "its head, at byte 0"),
        (TWO_EPISODES[:40], "its behavior, at byte 33 of 40"),
        (TWO_EPISODES[:-1], "record 5, at byte 218 of 263"),
        (TWO_EPISODES[:218], "4 records; its head says 5, so it was cut short"),
        (TWO_EPISODES.replace(b"\x08\x01\x12\x03two", b"\x08\x07\x12\x03two"), "version 7 with 5 steps"),
        (TWO_EPISODES.replace(b"\x10\x01\x1a\x01\x03", b"\x10\x01\x1a\x01\x04"), r"\(4,\); Aim has 1 and \(3,\)"),
        (TWO_EPISODES.replace(b"\x0a\x01\x02\x22", b"\x0a\x01\x03\x22"), r"shape \(3,\); expected \(2,\)"),
        (TWO_EPISODES.replace(floats(3, 4), floats(float("nan"), 4)), "eye: numbers that are not finite"),
        (TWO_EPISODES.replace(b"\x3a\x01\x00", b"\x3a\x01\x09"), r"discrete action \[9\]"),
        (META.ljust(33, b"\0").replace(b"\x18\x05", b"\x18\x00") + BRAIN, "no decision whose outcome is told"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.demo").write_bytes(data)
    with pytest.raises(DemonstrationError, match=words):
        read_demonstrations(tmp_path / "x.demo", SPEC)


def test_where_nothing_is_and_what_is_no_demonstration(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(TWO_EPISODES)
    for path, words in (
        (tmp_path, "a folder without any"),
        (tmp_path / "y", "no such"),
        (tmp_path / "x.txt", "no .demo"),
    ):
        with pytest.raises(DemonstrationError, match=words):
            read_demonstrations(path, SPEC)
    with pytest.raises(DemonstrationError, match=r"use .*x\.demo"):
        write_demonstrations(tmp_path / "x.txt", SPEC, "Aim", episodes())
    with pytest.raises(DemonstrationError, match=r"use expert\.demo"):
        write_demonstrations(Path(), SPEC, "Aim", episodes())


def test_small_files_claim_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.unity.demonstrations.MAX_BYTES", 300)
    whole = read_demonstrations
    (tmp_path / "x.demo").write_bytes(TWO_EPISODES)
    assert len(whole(tmp_path / "x.demo", SPEC)) == 3
    wide = BehaviorSpec("Aim", (ObservationSpec("eye", (2,)),) * 20, SPEC.actions)
    with pytest.raises(DemonstrationError, match="1 observations; Aim has 20"):
        whole(tmp_path / "x.demo", wide)
    (tmp_path / "x.demo").write_bytes(TWO_EPISODES + bytes(300))
    with pytest.raises(DemonstrationError, match="564 bytes; at most 300"):
        whole(tmp_path / "x.demo", SPEC)


@pytest.mark.parametrize(
    ("most", "what"), [(15, "its head, at byte 0, takes 16"), (37, "record 1, at byte 50, takes 38")]
)
def test_long_messages_are_not_parsed(most: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 MB of empty observations, two bytes each, took 530 MB of memory, as many descriptions of actions 710 MB."""
    monkeypatch.setattr("palus.unity.demonstrations.MAX_MESSAGE_BYTES", most)
    (tmp_path / "x.demo").write_bytes(TWO_EPISODES)
    with pytest.raises(DemonstrationError, match=f"{what} bytes; expected {most} at most"):
        read_demonstrations(tmp_path / "x.demo", SPEC)
    with pytest.raises(DemonstrationError, match=f"{what} bytes; expected {most} at most"):
        demonstrated(tmp_path / "x.demo", None)


def test_a_scripted_player_is_recorded_with_what_it_saw_did_and_got(tmp_path: Path) -> None:
    path, words = tmp_path / "chaser.demo", ["record", "ball-chaser", "--game", "SoccerTwos", "--episodes", "4"]
    result = CliRunner().invoke(app, [*words, str(path)])
    assert result.exit_code == 0, result.output
    spec = envs.GameSource("SoccerTwos").spec.behaviors[0]
    found = read_demonstrations(path, spec)
    assert found.ended.sum() == 4 and f"{len(found):,} decisions in 4 episodes" in result.output
    # It begins with what one of the four sees at the start of the match of seed 0.
    env = envs.make("SoccerTwos", 1)
    env.reset(np.zeros(1, np.int64))
    seen, _ = observe_slots(env, spec, np.ones((1, 4), np.bool_))
    assert any(np.array_equal(found.observations["obs_0"][0], row) for row in seen["obs_0"])
    assert set(np.unique(found.actions)) <= {0.0, 1.0, 2.0} and len(np.unique(found.actions, axis=0)) > 3
    nameless = CliRunner().invoke(app, ["record", "ball-chaser", str(path)])
    assert nameless.exit_code != 0 and "--game SoccerTwos" in nameless.stderr
    wrong = CliRunner().invoke(app, ["record", "nobody", str(path), "--game", "SoccerTwos"])
    assert wrong.exit_code != 0
    which = CliRunner().invoke(app, ["record", "ball-chaser", str(path), "--game", "StrikersVsGoalie"])
    assert "--behavior: StrikersVsGoalie has Striker, Goalie; name one" in " ".join(which.stderr.split())


def test_ctrl_c_keeps_the_episodes_that_were_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palus.run import demonstrate

    def pressed_in_the_third(*arguments: object) -> Iterator[ExpertEpisode]:
        for number, episode in enumerate(play_episodes(*arguments), 1):
            if number == 3:
                signal.raise_signal(signal.SIGINT)
            yield episode

    play_episodes = demonstrate.play_episodes
    monkeypatch.setattr(demonstrate, "play_episodes", pressed_in_the_third)
    words = ["record", "ball-chaser", "--game", "SoccerTwos", "--episodes", "500", str(tmp_path / "chaser.demo")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 130 and "3 of 500 episodes were over and count" in result.stderr
    spec = envs.GameSource("SoccerTwos").spec.behaviors[0]
    assert read_demonstrations(tmp_path / "chaser.demo", spec).ended.sum() == 3
