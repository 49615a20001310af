"""Every error that a user can cause, in one tree. Each message says what was found, what was expected and what to do.

    PalusError
      ConfigError      a run file or an override is wrong
      EnvError         an environment breaks the contract of `palus.envs.protocol`
        ScenarioError  a game's files are not on this machine
      TrustError       a file or a message names code that nobody here allowed to run
      WorkerError      worker processes cannot be kept alive
      DivergenceError  training produced numbers that are not finite
      ModelError       a policy file is missing, foreign or corrupt
      CheckpointError  a run folder or checkpoint is missing or corrupt
      ReplayError      a replay file is missing or corrupt
      StorageError     a file could not be written (full disk, read-only folder)
      HubError         a model repository is missing, out of reach, or refuses what it was asked
      ArenaError       the match log, a job or a result is not what the arena needs
        LeaseError     a job is no longer the sender's
        FalseReportError   what a worker sent cannot be true of its job

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
    """An environment breaks its contract, or produced NaN."""


class ScenarioError(EnvError):
    """Files that a game needs are missing; the message says which package holds them."""


class TrustError(PalusError):
    """Something from outside names code to run; `--trust` allows it where a person decides."""


class WorkerError(PalusError):
    """Worker processes crash or hang faster than they may be restarted."""


class DivergenceError(PalusError):
    """Training produced numbers that are not finite; the last checkpoint is from before."""


class ModelError(PalusError):
    """A policy file cannot be played."""


class CheckpointError(PalusError):
    """A run cannot be resumed from what lies on disk."""


class ReplayError(PalusError):
    """A replay file cannot be read."""


class StorageError(PalusError):
    """A file could not be written; nothing that was there before is lost."""


class HubError(PalusError):
    """A hub, a repository or a token is missing, out of reach, or not good for what was asked."""


class ArenaError(PalusError):
    """The match log, a job or a result is not what the arena needs."""


class LeaseError(ArenaError):
    """The lease that came with a result is void: it ran out and the job went to another worker."""


class FalseReportError(ArenaError):
    """A report that no honest worker sends: it is not one, or contradicts the job. Its sender is trusted no more."""
