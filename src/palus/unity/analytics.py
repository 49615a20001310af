"""What a trainer tells Unity of a run, over the side channel of training analytics.

The whole run file goes along, in ML-Agents' sections; but every text that is not one of a key's choices goes as
HMAC-SHA256: names and paths are their owner's. ML-Agents does so with names of behaviors, parameters and lessons and
with most paths, and tells the run id, the executable and its arguments as they are.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from palus import __version__
from palus.config import RunFile
from palus.config.load import plain
from palus.unity.messages import Anything, BehaviorTold, EnvironmentTold

KEY = b"unity.ml-agents"
NAMED = ("behaviors", "environment_parameters")
"""Sections whose keys are names."""
CHOICES = frozenset({
    "activation", "adaptive_learning_rate", "advantages", "beta_schedule", "change_unit", "counting", "device",
    "encoding", "epsilon_schedule", "exploration_loss", "goal_conditioning_type", "initialization", "kind", "learn",
    "learning_rate_schedule", "measure", "opponents", "sampler_type", "trainer_type", "vis_encode_type",
})  # fmt: skip
"""Keys whose texts are choices, and say nothing of whose run it is."""


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
            run_options=json.dumps(self._options()),
        )
        return _packed("TrainingEnvironmentInitialized", told)

    def behavior(self, name: str) -> bytes | None:
        """What is told when training of a behavior begins; None of one that nobody trains."""
        settings = self._run.completed([name]).behaviors.get(name)
        if settings is None:
            return None
        network, signals = settings.network_settings, settings.reward_signals
        told = BehaviorTold(
            behavior_name=_covered(name),
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
            curriculum_enabled=any(
                lesson.completion_criteria is not None and lesson.completion_criteria.behavior == name
                for lessons in self._run.lessons().values()
                for lesson in lessons
            ),
            config=json.dumps(_nameless(plain(settings))),
        )
        return _packed("TrainingBehaviorInitialized", told)

    def _options(self) -> dict[str, Any]:
        """The run file as ML-Agents has it: without what only palus has, every parameter a list of lessons."""
        tree = plain(self._run)
        del tree["palus"]
        lessons = {name: [own.model_dump(mode="json") for own in found] for name, found in self._run.lessons().items()}
        tree["environment_parameters"] = {name: {"curriculum": own} for name, own in lessons.items()} or None
        for section in NAMED:
            tree[section] = tree[section] and {_covered(name): own for name, own in tree[section].items()}
        return {section: _nameless(own, section) for section, own in tree.items()}


def _covered(text: str) -> str:
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


def _nameless(value: Any, key: str = "") -> Any:
    """A value of that key, every text in it covered that is no choice."""
    if isinstance(value, dict):
        return {name: _nameless(own, name) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_nameless(own, key) for own in value]
    is_choice = key in CHOICES and isinstance(value, str) and not set(value) & set(":/\\")  # not module:Class
    return value if is_choice or not isinstance(value, str) else _covered(value)


def _packed(kind: str, told: Any) -> bytes:
    made = Anything(type_url=f"type.googleapis.com/communicator_objects.{kind}", value=told.SerializeToString())
    data: bytes = made.SerializeToString()
    return data
