"""Every error that a user can cause, in one tree. Each message says what was found, what was expected and what to do.

Programming errors stay asserts and built-in exceptions; the command line prints only `PalusError` without a traceback.
"""

from __future__ import annotations


class PalusError(Exception):
    """Base of everything palus raises for the user's sake."""


class ConfigError(PalusError):
    """A run file, a preset or an override is wrong. `faults` holds one sentence per fault."""

    def __init__(self, faults: str | list[str]) -> None:
        self.faults = [faults] if isinstance(faults, str) else faults
        super().__init__("\n".join(self.faults))


class EnvError(PalusError):
    """An environment breaks the contract of `palus.envs.protocol`, or produced NaN."""


class ScenarioError(EnvError):
    """Files that a game needs are missing; the message says which package holds them."""


class TrustError(PalusError):
    """Something from outside names code to run; `--trust` allows it where a person decides."""


class WorkerError(PalusError):
    """Worker processes crash or hang faster than they may be restarted."""


class RankError(PalusError):
    """Another rank of a run of several processes is gone; none of them can go on alone."""


class ProtocolError(PalusError):
    """The other end of a game's connection says what the protocol does not have, is silent, or is gone."""


class LostGameError(ProtocolError):
    """The game at the other end ended, broke off or is silent: another one may be started in its place."""


class ClosedGameError(LostGameError):
    """The game said that it ends, as the Editor does when Play is stopped."""


class StoppedEarly(Exception):  # noqa: N818 - nothing went wrong
    """A person ended the run in the middle of a rollout, of which nothing was learned."""


class DivergenceError(PalusError):
    """Training produced numbers that are not finite; the last checkpoint is from before."""


class ModelError(PalusError):
    """A policy file is missing, foreign or corrupt."""


class DemonstrationError(PalusError):
    """A demonstration is missing, damaged, or of another behavior."""


class CheckpointError(PalusError):
    """A run folder or checkpoint is missing or corrupt."""


class ExistingRunError(CheckpointError):
    """There is a run of this id, and nobody said what becomes of it."""


class SupersededError(CheckpointError):
    """Another process has trained on in this run's name; its checkpoint is the newer one."""


class ReplayError(PalusError):
    """A replay file is missing or corrupt."""


class StorageError(PalusError):
    """A file could not be written (full disk, read-only folder); nothing that was there before is lost."""


class StorageAwayError(StorageError):
    """A storage does not do what is asked of it now, as it is out of reach or full: it is worth asking again."""


class HubError(PalusError):
    """A hub, a repository or a token is missing, out of reach, or not good for what was asked."""


class ArenaError(PalusError):
    """The match log, a job or a result is not what the arena needs."""


class UnreachableError(ArenaError):
    """An arena does not answer, or is busy: what it was told is worth telling again."""


class LeaseError(ArenaError):
    """The lease that came with a result is void: it ran out and the job went to another worker."""


class FalseReportError(ArenaError):
    """A report that no honest worker sends: it is not one, or contradicts the job. Its sender is trusted no more."""
