"""The keys that a trainer does not read, or a kind of game has no use for: declared by exception.

Whatever stands in neither table and is not idle beside other keys (`palus.config.idle`) is read;
`tests/test_run_file_keys.py` holds trainers and games to that, key by key. To make a key work, take the trainer off its
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from palus.config.appo import Sampling
from palus.config.run_file import EDITOR, RunFile
from palus.config.section import Section
from palus.config.trainer import TRAINERS

APPO, ALL = frozenset({"appo"}), frozenset(TRAINERS)
IN_PROCESS, IN_WORKERS = frozenset(("in process",)), frozenset(("in workers",))
"""Kinds of games: those of palus, by where they are stepped."""
EXECUTABLE, IN_EDITOR, BASE_ENV = frozenset(("executable",)), frozenset(("Editor",)), frozenset(("BaseEnv",))
"""Those that talk: Unity's, and environments of this process that were made as if for it."""
BUILT_IN, UNITY = IN_PROCESS | IN_WORKERS, EXECUTABLE | IN_EDITOR
EVERY_GAME = BUILT_IN | UNITY | BASE_ENV


@dataclass(frozen=True)
class KnownGame:
    """What only the game of a run can say of the file. in_workers: it is stepped in worker processes. yardsticks: the
    fixed opponents that it declares, None where no arena ranks it. with_images, with_numbers: its behaviors that see
    images, and that act by continuous numbers; "" means any name. rows: behavior of appo -> rows of a rollout and the
    decisions of each, where all matches step in this process."""

    in_workers: bool
    yardsticks: tuple[str, ...] | None
    with_images: frozenset[str]
    with_numbers: frozenset[str]
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def kinds_of(run: RunFile, game: KnownGame | None) -> frozenset[str]:
    """What kind of game a run has; several where that is for the game to say and it was not asked."""
    if run.env_settings.env_path is not None:
        return IN_EDITOR if run.env_settings.env_path == EDITOR else EXECUTABLE
    if run.talks:
        return BASE_ENV
    if game is None:
        return BUILT_IN
    return IN_WORKERS if game.in_workers else IN_PROCESS


@dataclass(frozen=True)
class Unread:
    """A key, or a section with all its keys, that some trainers do not read.

    trainers: those that do not. why: the end of the sentence that tells it. refused: the run would be another than the
    file says, so it does not start; else the key is noted. games: in which it is not read.
    """

    key: str
    trainers: frozenset[str]
    why: str
    refused: bool = False
    games: frozenset[str] = EVERY_GAME


def written(section: Section, key: str) -> Iterator[object]:
    """The value of a key below a section, by its dotted path, where it is another than its default."""
    *holders, last = key.split(".")
    here: Section | None = section
    for holder in holders:
        here = getattr(here, holder)
        if here is None:
            return
    assert here is not None
    value, field = getattr(here, last), type(here).model_fields[last]
    if value != field.get_default(call_default_factory=True, validated_data=here.__dict__):
        yield value


OF_BEHAVIORS = (
    Unread("network_settings.memory.sequence_length", APPO, "sequences are time_horizon long; remove it", refused=True),
    *(
        Unread(f"reward_signals.{name}", APPO, "appo learns from extrinsic alone; use ppo, poca or sac", refused=True)
        for name in ("curiosity", "gail", "rnd")
    ),
    *(
        Unread(f"reward_signals.{name}.network_settings.deterministic", ALL - APPO, "its network takes no decisions")
        for name in ("curiosity", "gail", "rnd")
    ),
    Unread("reward_signals.extrinsic.network_settings", ALL, "the game's own reward needs no network"),
    Unread("behavioral_cloning", APPO, "appo does not imitate; use ppo, poca or sac", refused=True),
    Unread("threaded", ALL, "palus uses all threads anyway"),
)  # fmt: skip
"""Keys below behaviors.NAME."""

_UNITY = "it is about Unity executables"
_NO_UNITY = "it is about games of palus"
_NOT_UNITY, _NOT_STARTED = BUILT_IN | BASE_ENV, BUILT_IN | BASE_ENV | IN_EDITOR
_TALKING = UNITY | BASE_ENV
OF_RUNS = (
    Unread("env_settings.env_args", ALL, _UNITY, games=_NOT_STARTED),
    Unread("env_settings.base_port", ALL, _UNITY, games=_NOT_STARTED),
    Unread("env_settings.num_envs", ALL, f"{_UNITY}; use palus.num_matches or palus.sampling", games=BUILT_IN),
    Unread("env_settings.num_areas", ALL, _UNITY, games=_NOT_UNITY),
    Unread("env_settings.timeout_wait", ALL, _UNITY, games=_NOT_UNITY),
    Unread("env_settings.max_lifetime_restarts", ALL, _UNITY, games=BUILT_IN),
    Unread("env_settings.restarts_rate_limit_n", ALL, _UNITY, games=BUILT_IN),
    Unread("env_settings.restarts_rate_limit_period_s", ALL, _UNITY, games=BUILT_IN),
    Unread("engine_settings", ALL, _UNITY, games=_NOT_UNITY),
    Unread("engine_settings.no_graphics", ALL, "the Editor is not started by palus", games=IN_EDITOR),
    Unread("engine_settings.no_graphics_monitor", ALL, "the Editor is not started by palus", games=IN_EDITOR),
    Unread("checkpoint_settings.train_model", ALL, "every run trains"),
    Unread("palus.league.runs", ALL, "`palus train` trains one run, `palus league` all of these"),
    Unread("debug", ALL, "what a run logs is always the same", games=_NOT_STARTED),
    Unread(
        "palus.env", ALL, "env_settings.env_path names a game too; remove one of the two", refused=True, games=UNITY
    ),
    Unread("palus.env_options", ALL, _NO_UNITY, games=UNITY),
    Unread("palus.num_matches", ALL, f"{_NO_UNITY}; use env_settings.num_envs", games=_TALKING),
    Unread("palus.sampling", ALL, f"{_NO_UNITY}; use env_settings.num_envs", games=_TALKING),
    *(
        Unread(
            f"palus.sampling.{key}", ALL, "it is about worker processes; this game is stepped without", games=IN_PROCESS
        )
        for key in Sampling.model_fields
        if key != "collector"
    ),
    *(
        Unread(f"palus.{key}", ALL, _NO_UNITY, games=_TALKING)
        for key in ("baselines", "baseline_interval", "baseline_pairs")
    ),
)
"""Keys outside the behaviors; unread where no trainer of the run reads them."""


def unread(run: RunFile, games: frozenset[str], *, refused: bool) -> Iterator[tuple[str, object, str]]:
    """Path, value and reason of every key that the run writes, and its trainers or its game, of one of these kinds, do
    not read."""
    for name, behavior in run.behaviors.items():
        for entry in OF_BEHAVIORS:
            if entry.refused == refused and behavior.trainer_type in entry.trainers:
                path = f"behaviors.{name}.{entry.key}"
                yield from ((path, value, entry.why) for value in written(behavior, entry.key))
    settings = list(run.behaviors.values()) or [own for own in [run.default_settings] if own is not None]
    trainers = {behavior.trainer_type for behavior in settings}
    for entry in OF_RUNS:
        if games <= entry.games and entry.refused == refused and trainers and trainers <= entry.trainers:
            yield from ((entry.key, value, entry.why) for value in written(run, entry.key))
