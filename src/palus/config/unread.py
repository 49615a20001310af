"""The keys that a trainer does not read: the declaration of each trainer, by exception.

Whatever stands in neither table, a trainer reads; `tests/test_run_file_keys.py` holds it to that, key by key. To make a
key work, take the trainer off its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palus.config.run_file import RunFile
from palus.config.section import Section
from palus.config.trainer import TRAINERS

APPO, SAC = frozenset({"appo"}), frozenset({"sac"})
ALL = frozenset(TRAINERS)
BUILT_IN, EXECUTABLE, IN_PROCESS = frozenset(("built-in",)), frozenset(("executable",)), frozenset(("in-process",))
"""Kinds of games: of palus, Unity's, and those of this process that were made as if for it."""
TALKING = EXECUTABLE | IN_PROCESS


@dataclass(frozen=True)
class Unread:
    """A key, or a section with all its keys, that some trainers do not read.

    trainers: those that do not. why: the end of the sentence that tells it. refused: the run would be another than the
    file says, so it does not start; else the key is noted. harmless: values that mean what happens anyway, beside the
    default. games: in which it is not read.
    """

    key: str
    trainers: frozenset[str]
    why: str
    refused: bool = False
    harmless: tuple[object, ...] = ()
    games: frozenset[str] = BUILT_IN | TALKING

    def written(self, section: Section, prefix: str) -> Iterator[tuple[str, object]]:
        """The key's path and value where a section below `prefix` has another value than its default."""
        *holders, last = self.key.split(".")
        here: Section | None = section
        for holder in holders:
            here = getattr(here, holder)
            if here is None:
                return
        assert here is not None
        value, field = getattr(here, last), type(here).model_fields[last]
        default = field.get_default(call_default_factory=True, validated_data=here.__dict__)
        if value != default and value not in self.harmless:
            yield f"{prefix}{self.key}", value


def _refused(
    key: str, trainers: frozenset[str], why: str, *harmless: object, games: frozenset[str] = BUILT_IN | TALKING
) -> Unread:
    return Unread(key, trainers, why, refused=True, harmless=harmless, games=games)


OF_BEHAVIORS = (
    _refused("network_settings.memory.sequence_length", APPO, "sequences are time_horizon long; remove it"),
    *(
        _refused(f"reward_signals.{name}", APPO, "appo learns from extrinsic alone; use ppo, poca or sac")
        for name in ("curiosity", "gail", "rnd")
    ),
    *(
        Unread(f"reward_signals.{name}.network_settings.{key}", ALL - APPO, "a signal's network takes no decisions")
        for name in ("curiosity", "gail", "rnd")
        for key in ("goal_conditioning_type", "deterministic")
    ),
    Unread("reward_signals.extrinsic.network_settings", ALL, "the game's own reward needs no network"),
    _refused("behavioral_cloning", APPO, "appo does not imitate; use ppo, poca or sac"),
    Unread("threaded", ALL, "palus uses all threads anyway"),
)  # fmt: skip
"""Keys below behaviors.NAME."""

_UNITY = "it is about Unity executables"
_NO_UNITY = "it is about games of palus"
OF_RUNS = (
    Unread("env_settings.env_args", ALL, _UNITY, games=BUILT_IN | IN_PROCESS),
    Unread("env_settings.base_port", ALL, _UNITY, games=BUILT_IN | IN_PROCESS),
    Unread("env_settings.num_envs", ALL, f"{_UNITY}; use palus.num_matches or palus.sampling", games=BUILT_IN),
    Unread("env_settings.num_areas", ALL, _UNITY, games=BUILT_IN | IN_PROCESS),
    Unread("env_settings.timeout_wait", ALL, _UNITY, games=BUILT_IN | IN_PROCESS),
    Unread("env_settings.max_lifetime_restarts", ALL, _UNITY, games=BUILT_IN),
    Unread("env_settings.restarts_rate_limit_n", ALL, _UNITY, games=BUILT_IN),
    Unread("env_settings.restarts_rate_limit_period_s", ALL, _UNITY, games=BUILT_IN),
    Unread("engine_settings", ALL, _UNITY, games=BUILT_IN | IN_PROCESS),
    Unread("checkpoint_settings.train_model", ALL, "every run trains"),
    Unread("palus.league.runs", ALL, "`palus train` trains one run, `palus league` all of these"),
    Unread("debug", ALL, "what a run logs is always the same", games=BUILT_IN | IN_PROCESS),
    _refused("palus.env", ALL, "env_settings.env_path names a game too; remove one of the two", games=EXECUTABLE),
    Unread("palus.env_options", ALL, _NO_UNITY, games=EXECUTABLE),
    Unread("palus.num_matches", ALL, f"{_NO_UNITY}; use env_settings.num_envs", games=TALKING),
    Unread("palus.sampling", ALL, f"{_NO_UNITY}; use env_settings.num_envs", games=TALKING),
    Unread("palus.baselines", ALL, _NO_UNITY, games=TALKING),
)  # fmt: skip
"""Keys outside the behaviors; unread where no trainer of the run reads them."""


def unread(run: RunFile, *, refused: bool) -> Iterator[tuple[str, object, str]]:
    """Path, value and reason of every key that the run writes and its trainers do not read."""
    for name, behavior in run.behaviors.items():
        for entry in OF_BEHAVIORS:
            if entry.refused == refused and behavior.trainer_type in entry.trainers:
                for path, value in entry.written(behavior, f"behaviors.{name}."):
                    yield path, value, entry.why
    settings = list(run.behaviors.values()) or [own for own in [run.default_settings] if own is not None]
    trainers = {behavior.trainer_type for behavior in settings}
    kind = EXECUTABLE if run.env_settings.env_path is not None else IN_PROCESS if run.talks else BUILT_IN
    for entry in OF_RUNS:
        of_game = kind <= entry.games
        if of_game and entry.refused == refused and trainers and trainers <= entry.trainers:
            for path, value in entry.written(run, ""):
                yield path, value, entry.why
