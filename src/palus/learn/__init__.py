"""Learners: one file per algorithm, maths as pure functions. Needs torch."""

from __future__ import annotations

from collections.abc import Callable

from palus.errors import ConfigError
from palus.learn.appo import APPO
from palus.learn.learner import Learner
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.sac import SAC
from palus.trust import Trust, load

ALGORITHMS: dict[str, type[Learner]] = {"ppo": PPO, "poca": POCA, "appo": APPO, "sac": SAC}
"""By `trainer_type`."""


def learner_class(trainer_type: str, own: str | None, trust: Trust) -> Callable[..., Learner]:
    """What learns for a behavior. own: `module:Class` of `palus.trainers`, made from the class of its `trainer_type`.

    Raises TrustError where it may not run, ConfigError where there is no such class.
    """
    base = ALGORITHMS[trainer_type]
    if own is None:
        return base
    try:
        found = load(own, trust, f"palus.trainers {own}")
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"palus.trainers {own}: no such class ({error}); check module, class and PYTHONPATH"
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"palus.trainers {own}: expected a class made from palus.learn.{base.__name__}, that of trainer_type "
            f"{trainer_type}"
        )
    return found
