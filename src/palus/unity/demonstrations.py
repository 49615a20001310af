"""Demonstration files of ML-Agents (`.demo`): what an expert saw and did, one decision after another.

A file is a sequence of messages, each after its length as a varint: a DemonstrationMetaProto at byte 0, a
BrainParametersProto at byte BRAIN_AT, then an AgentInfoActionPairProto for each decision and each end of an episode.
What came of a decision stands in the record after it, so the last record of a file is never a decision of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from palus.errors import DemonstrationError, ProtocolError
from palus.files import write_atomically
from palus.types import F32, AnyArray, BehaviorSpec, Bool
from palus.unity.messages import Brain, DemonstrationMeta, InfoAndAction
from palus.unity.translation import (
    action_spec,
    columns_of,
    describe_actions,
    numbers,
    observation_of,
    observation_specs,
    observation_template,
    write_action,
)

SUFFIX = ".demo"
BRAIN_AT = 33
"""The byte at which the brain begins: what stands before it has to fit."""
VERSION, VERSIONS = 1, (0, 1)
"""`api_version` as it is written, and as it is read."""
MAX_NAME = 16
MAX_BYTES = 1 << 31
"""Of a file, and of the observations in it: pictures are packed, and a small file can hold any number."""
MAX_MESSAGE_BYTES = 4 << 20
"""Of one message, which takes up to 70 times as much memory once it is parsed. ML-Agents' trainer takes as much of all
agents of a game at once."""
_VARINT_BYTES = 5


@dataclass(frozen=True)
class Demonstrations:
    """n decisions of experts, one after another.

    observations: name -> [n, *shape] as the game gives them; actions: [n, A] as the game is told them; rewards: [n],
    groups' included; ended: [n], the episode ended with it, by the rules or not.
    """

    observations: Mapping[str, AnyArray]
    actions: F32
    rewards: F32
    ended: Bool

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class ExpertEpisode:
    """One episode of one agent. observations, actions: as in `Demonstrations`; masks: [n, M], True where allowed, None
    without; rewards, group_rewards: [n]; truncated: it was cut off. last: what was seen at its end, name -> [*shape];
    None where the game does not say."""

    observations: Mapping[str, AnyArray]
    actions: F32
    masks: Bool | None
    rewards: F32
    group_rewards: F32
    truncated: bool
    last: Mapping[str, AnyArray] | None = None


def read_demonstrations(path: Path, spec: BehaviorSpec) -> Demonstrations:
    """All decisions in a file, or in all files of a folder by their names. spec: the behavior that is to learn from it.

    Raises DemonstrationError for what is missing, damaged, cut short, foreign, or of another behavior.
    """
    parts = []
    for file in _files(path):
        try:
            parts.append(_decisions(_records(file, spec), spec))
        except ProtocolError as error:
            raise DemonstrationError(f"{file}: {error}") from error
    whole = Demonstrations(
        {o.name: np.concatenate([part.observations[o.name] for part in parts]) for o in spec.observations},
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("actions", "rewards", "ended")),
    )
    if not len(whole):
        raise DemonstrationError(f"{path}: no decision whose outcome is told; record an episode to its end")
    return whole


def demonstrated(path: Path, spec: BehaviorSpec | None) -> BehaviorSpec:
    """What is seen and done in demonstrations, by the head and the first record of every file: enough to tell before a
    run whether they fit. spec: the behavior that is to learn from them; None: what the first file shows.

    Raises DemonstrationError for what is missing, foreign, damaged there, or of another behavior.
    """
    for file in _files(path):
        data, _, brain, at = _opened(file)
        if spec is not None:
            _check_actions(file, brain, spec)
        info = _message(InfoAndAction, data, at, file, "record 1")[0].agent_info
        try:
            shown = BehaviorSpec(brain.brain_name, observation_specs(info.observations), action_spec(brain))
        except ValueError as error:
            raise DemonstrationError(f"{file}: {error}") from error
        spec = spec or shown
        found, expected = ([o.shape for o in own.observations] for own in (shown, spec))
        if found != expected:
            raise DemonstrationError(
                f"{file}: observations {found}; {spec.name or 'the game'} has {expected}, so give demonstrations of "
                "that behavior"
            )
    assert spec is not None
    return spec


def _files(path: Path) -> list[Path]:
    """At least one. Raises DemonstrationError."""
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files or not path.exists():
        found = f"a folder without any {SUFFIX} file" if path.exists() else "no such file or folder"
        raise DemonstrationError(f"{path}: {found}; demo_path names a {SUFFIX} file, or a folder of some")
    return files


def _opened(file: Path) -> tuple[bytes, Any, Any, int]:
    """What a file holds, its head, its behavior, and the byte at which its records begin."""
    if file.suffix != SUFFIX or not file.is_file():
        raise DemonstrationError(f"{file}: no {SUFFIX} file; demo_path names one, or a folder of some")
    try:
        if (size := file.stat().st_size) > MAX_BYTES:
            raise DemonstrationError(f"{file}: {size:,} bytes; at most {MAX_BYTES:,} are read, so split it")
        data = file.read_bytes()
    except OSError as error:
        raise DemonstrationError(f"{file}: cannot be read ({error.strerror or error})") from error
    meta, _ = _message(DemonstrationMeta, data, 0, file, "its head")
    if meta.api_version not in VERSIONS or meta.number_steps < 0:
        raise DemonstrationError(
            f"{file}: version {meta.api_version} with {meta.number_steps} steps; expected a demonstration of "
            f"ML-Agents, version {VERSION}"
        )
    return data, meta, *_message(Brain, data, BRAIN_AT, file, "its behavior")


def _records(file: Path, spec: BehaviorSpec) -> Iterator[Any]:
    """The pairs of a file. Raises DemonstrationError unless they are `spec`'s."""
    data, meta, brain, at = _opened(file)
    _check_actions(file, brain, spec)
    count = 0
    while at < len(data) and (count < meta.number_steps or not meta.number_steps):
        pair, at = _message(InfoAndAction, data, at, file, f"record {count + 1}")
        count += 1
        yield pair
    if count < meta.number_steps:
        raise DemonstrationError(
            f"{file}: {count} records; its head says {meta.number_steps}, so it was cut short: record it anew"
        )


def _message(kind: Any, data: bytes, at: int, file: Path, what: str) -> tuple[Any, int]:
    """The message at a byte, and the byte after it. Raises DemonstrationError where there is none."""
    length = 0
    for k, byte in enumerate(data[at : at + _VARINT_BYTES]):
        length |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            first = at + k + 1
            if first + length > len(data):
                break
            if length > MAX_MESSAGE_BYTES:
                raise DemonstrationError(
                    f"{file}: {what}, at byte {at}, takes {length:,} bytes; expected {MAX_MESSAGE_BYTES:,} at most, so "
                    "record it with smaller or with compressed pictures"
                )
            try:
                return kind.FromString(data[first : first + length]), first + length
            except DecodeError:
                break
    raise DemonstrationError(
        f"{file}: {what}, at byte {at} of {len(data):,}, is no message of a demonstration, or one cut short; expected "
        "a file that ML-Agents or `palus record` wrote to its end"
    )


def _check_actions(file: Path, brain: Any, spec: BehaviorSpec) -> None:
    try:
        theirs = action_spec(brain)
    except ValueError as error:
        raise DemonstrationError(f"{file}: {error}") from error

    def numbers_and_choices(actions: Any) -> tuple[int, tuple[int, ...]]:
        return actions.columns - len(actions.branches), actions.branches

    found, expected = numbers_and_choices(theirs), numbers_and_choices(spec.actions)
    if found != expected:
        raise DemonstrationError(
            f"{file}: of behavior {brain.brain_name}, with {found[0]} continuous actions and choices {found[1]}; "
            f"{spec.name or 'the game'} has {expected[0]} and {expected[1]}, so give demonstrations of that behavior"
        )


def _decisions(pairs: Iterable[Any], spec: BehaviorSpec) -> Demonstrations:
    """The records that are decisions and whose outcome is told: not ends, nor the last one."""
    row_bytes = sum(o.size * np.dtype(o.dtype).itemsize for o in spec.observations)
    seen: dict[str, list[AnyArray]] = {o.name: [] for o in spec.observations}
    actions, rewards, ended = [np.zeros((0, spec.actions.columns), np.float32)], list[float](), list[bool]()
    for pair, after in pairwise(pairs):
        info, outcome = pair.agent_info, after.agent_info
        if info.done:
            continue
        if len(info.observations) != len(spec.observations):
            raise ProtocolError(
                f"{len(info.observations)} observations; {spec.name or 'the game'} has {len(spec.observations)}"
            )
        if len(actions) * row_bytes > MAX_BYTES:
            raise ProtocolError(f"more than {MAX_BYTES:,} bytes of observations, as many as are read; split it")
        for told, o in zip(info.observations, spec.observations, strict=True):
            found = observation_of(told, o, f"{o.name} of decision {len(actions)}").reshape(o.shape)
            seen[o.name].append(np.rint(found * 255).clip(0, 255).astype(np.uint8) if o.dtype == "uint8" else found)
        actions.append(columns_of(spec, _modern(pair.action_info, spec))[None])
        rewards.append(outcome.reward + outcome.group_reward)
        ended.append(outcome.done)
    observations = {o.name: np.array(seen[o.name], o.dtype).reshape(len(rewards), *o.shape) for o in spec.observations}
    paid = np.array(rewards, np.float32)
    for name, array in (*observations.items(), ("reward", paid)):
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise ProtocolError(f"{name}: numbers that are not finite; record it anew")
    return Demonstrations(observations, np.concatenate(actions), paid, np.array(ended, np.bool_))


def _modern(action: Any, spec: BehaviorSpec) -> Any:
    """An action of a release before hybrid ones as one of today."""
    if action.continuous_actions or action.discrete_actions or not action.vector_actions_deprecated:
        return action
    made = type(action)()
    if spec.actions.branches:
        old = np.frombuffer(action.vector_actions_deprecated, "<f4", len(action.vector_actions_deprecated) // 4)
        if not np.isfinite(old).all() or (np.abs(old) > 1 << 16).any():
            raise ProtocolError(f"actions {old.tolist()}; expected choices")
        made.discrete_actions.extend(old.astype(np.int64).tolist())
    else:
        made.continuous_actions = action.vector_actions_deprecated
    return made


def write_demonstrations(
    path: Path, spec: BehaviorSpec, name: str, episodes: Iterable[ExpertEpisode]
) -> tuple[int, int]:
    """Write episodes one after another; returns how many decisions and episodes there were. name: of the behavior.

    An end without a last observation is told with the episode's last decision: ML-Agents learns from that record too.
    Raises DemonstrationError for another ending of the file's name, StorageError; what was there before then stays.
    """
    if path.suffix != SUFFIX:
        named = path.parent / f"{path.stem or 'expert'}{SUFFIX}"
        raise DemonstrationError(f"{path}: a demonstration's file ends with {SUFFIX}; use {named}")
    meta = DemonstrationMeta(api_version=VERSION)

    def fill(file: BinaryIO) -> None:
        file.write(bytes(BRAIN_AT))
        brain = Brain(brain_name=name, is_training=True)
        describe_actions(brain, spec.actions)
        file.write(_delimited(brain))
        total, records = 0.0, 0
        for episode in episodes:
            for pair in _pairs(episode, spec):
                file.write(_delimited(pair))
                records += 1
            meta.number_episodes += 1
            total += float(episode.rewards.sum() + episode.group_rewards.sum())
        meta.number_steps, meta.mean_reward = records, total / max(meta.number_episodes, 1)
        file.seek(0)
        file.write(_head(meta, path.stem))

    write_atomically(path, fill)
    return meta.number_steps - meta.number_episodes, meta.number_episodes


def _head(meta: Any, name: str) -> bytes:
    """The delimited head, with as much of the name as there is room for."""
    plain = "".join(c for c in name if c.isascii() and c.isprintable())
    for length in range(MAX_NAME, -1, -1):
        meta.demonstration_name = plain[:length]
        if len(head := _delimited(meta)) <= BRAIN_AT:
            break
    return head


def _delimited(made: Any) -> bytes:
    data: bytes = made.SerializeToString()
    length, left = bytearray(), len(data)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*length, left]) + data


def _pairs(episode: ExpertEpisode, spec: BehaviorSpec) -> Iterator[Any]:
    """The records of an episode: its decisions, then its end."""
    templates, n = {o.name: observation_template(o) for o in spec.observations}, len(episode.actions)
    for i in range(n + 1):
        pair, row = InfoAndAction(), min(i, n - 1)
        info = pair.agent_info
        if i:
            info.reward, info.group_reward = episode.rewards[i - 1], episode.group_rewards[i - 1]
        info.done = i == n
        info.max_step_reached = info.done and episode.truncated
        seen = {name: rows[row] for name, rows in episode.observations.items()}
        shown = episode.last or seen if info.done else seen
        for name, template in templates.items():
            told = info.observations.add()
            told.CopyFrom(template)
            told.float_data.data = numbers(shown[name])
        if episode.masks is not None and not info.done:
            info.action_mask = (~episode.masks[row]).tobytes()
        write_action(pair.action_info, spec.actions, episode.actions[row])
        yield pair
