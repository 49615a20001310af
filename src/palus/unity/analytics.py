"""What a trainer tells Unity of a run, over the side channel of training analytics.

Kinds, sizes and counts alone. A behavior's name goes as HMAC-SHA256, as in ML-Agents; `run_options` and `config`, which
hold the whole run file there, stay empty: a run's names and paths are its owner's.
"""

from __future__ import annotations

import hashlib
import hmac
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from palus import __version__
from palus.config import RunFile
from palus.unity.messages import Anything, BehaviorTold, EnvironmentTold

KEY = b"unity.ml-agents"


class Analytics:
    """Of one run."""

    def __init__(self, run: RunFile) -> None:
        self._run = run

    def environment(self) -> bytes:
        """What is told when the game starts."""
        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = ""
        told = EnvironmentTold(
            mlagents_version=__version__,
            mlagents_envs_version=__version__,
            python_version=platform.python_version(),
            torch_version=torch,
            torch_device_type=(self._run.torch_settings.device or "cpu").partition(":")[0],
            num_envs=self._run.env_settings.num_envs,
            num_environment_parameters=len(self._run.environment_parameters or {}),
        )
        return _packed("TrainingEnvironmentInitialized", told)

    def behavior(self, name: str) -> bytes | None:
        """What is told when training of a behavior begins; None of one that nobody trains."""
        settings = self._run.completed([name]).behaviors.get(name)
        if settings is None:
            return None
        network, signals = settings.network_settings, settings.reward_signals
        told = BehaviorTold(
            behavior_name=hmac.new(KEY, name.encode(), hashlib.sha256).hexdigest(),
            trainer_type=settings.trainer_type,
            extrinsic_reward_enabled=signals.extrinsic is not None,
            gail_reward_enabled=signals.gail is not None,
            curiosity_reward_enabled=signals.curiosity is not None,
            rnd_reward_enabled=signals.rnd is not None,
            behavioral_cloning_enabled=settings.behavioral_cloning is not None,
            recurrent_enabled=network.memory is not None,
            visual_encoder=network.vis_encode_type,
            num_network_layers=network.num_layers,
            num_network_hidden_units=network.hidden_units,
            trainer_threaded=settings.threaded,
            self_play_enabled=settings.self_play is not None,
            curriculum_enabled=any(len(lessons) > 1 for lessons in self._run.lessons().values()),
        )
        return _packed("TrainingBehaviorInitialized", told)


def _packed(kind: str, told: Any) -> bytes:
    made = Anything(type_url=f"type.googleapis.com/communicator_objects.{kind}", value=told.SerializeToString())
    data: bytes = made.SerializeToString()
    return data
