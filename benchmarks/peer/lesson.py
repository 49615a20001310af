"""One lesson of lessons.py, taught by ML-Agents 1.1.0 itself; its folder is the working directory.

Reads an object of `behavior`, `env`, `steps` and `seed` as JSON from the standard input, and prints `told_line.TOLD`.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore")  # a library of 2023 on today's dependencies warns on every import

import torch  # noqa: E402
from mlagents import torch_utils  # noqa: E402
from mlagents.plugins.trainer_type import register_trainer_plugins  # noqa: E402
from mlagents.trainers.environment_parameter_manager import EnvironmentParameterManager  # noqa: E402
from mlagents.trainers.settings import RunOptions, TorchSettings  # noqa: E402
from mlagents.trainers.simple_env_manager import SimpleEnvManager  # noqa: E402
from mlagents.trainers.trainer import TrainerFactory  # noqa: E402
from mlagents.trainers.trainer_controller import TrainerController  # noqa: E402
from mlagents_envs.base_env import (  # noqa: E402
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel  # noqa: E402
from told_line import TOLD, Told  # noqa: E402

NAME = "Line"


class LineEnv(BaseEnv):  # type: ignore[misc]
    """The game in ML-Agents' own classes."""

    def __init__(self, game: Told) -> None:
        self._game = game
        observations = [
            ObservationSpec(
                own.shape,
                tuple(DimensionProperty(flag) for flag in own.dimension_property),
                ObservationType(own.observation_type.value),
                own.name,
            )
            for own in game.spec.observation_specs
        ]
        numbers, branches = game.spec.action_spec
        self._spec = BehaviorSpec(observations, ActionSpec(numbers, branches))

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping({f"{NAME}?team=0": self._spec})

    def reset(self) -> None:
        self._game.reset()

    def step(self) -> None:
        self._game.step()

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        deciding, ended = self._game.get_steps(NAME)
        return DecisionSteps(**vars(deciding)), TerminalSteps(**vars(ended))

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        self._game.set_actions(NAME, action)

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        raise ValueError("actions arrive for all agents at once here; call set_actions")

    def close(self) -> None:
        self._game.close()


def teach(lesson: dict[str, Any]) -> None:
    """Train to the last step, as ML-Agents' own command would."""
    options = RunOptions.from_dict({"behaviors": {NAME: lesson["behavior"] | {"max_steps": lesson["steps"]}}})
    parameters = EnvironmentParameterManager(options.environment_parameters, lesson["seed"], restore=False)
    factory = TrainerFactory(options.behaviors, "run", True, False, lesson["seed"], parameters)
    controller = TrainerController(factory, "run", "lesson", parameters, True, lesson["seed"])
    game = LineEnv(Told(**lesson["env"], seed=lesson["seed"]))
    manager = SimpleEnvManager(game, EnvironmentParametersChannel())
    controller._reset_env(manager)  # creates the trainers
    while controller.trainers[NAME].get_step < lesson["steps"]:
        for _ in range(controller.advance(manager)):
            controller.reset_env_if_ready(manager)


def main() -> None:
    """See the module's docstring."""
    logging.disable(logging.WARNING)
    register_trainer_plugins()
    torch_utils.set_torch_config(TorchSettings(device="cpu"))
    torch.set_num_threads(1)
    teach(json.load(sys.stdin))
    print(json.dumps(TOLD))


if __name__ == "__main__":
    main()
