"""How fast Unity ML-Agents 1.1.0 trains on this machine, when the game costs it nothing.

ML-Agents' own trainer controller, environment manager, agent processor, ghost trainer and PPO or MA-POCA optimizer run
in this process on `stand_in.StandInSoccerTwos`: no Unity, no gRPC, no physics. The figure is therefore an upper bound
for ML-Agents. Counted are whole collect + learn cycles after one warm-up cycle:

    trained agent-steps  decisions that reached an update (the learning team's; the other team's are discarded)
    env agent-steps      decisions of both teams
    cpu_s                CPU time of this process; with one thread it does not move with the load of other programs

The last line of the output is one JSON object. Run in the environment that setup.sh makes:
    benchmarks/peer/.venv/bin/python benchmarks/peer/measure.py --trainer poca --cycles 3
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")  # a library of 2023 on today's dependencies warns on every import

import torch  # noqa: E402
import yaml  # noqa: E402
from mlagents import torch_utils  # noqa: E402
from mlagents.plugins.trainer_type import register_trainer_plugins  # noqa: E402
from mlagents.trainers.env_manager import EnvironmentStep  # noqa: E402
from mlagents.trainers.environment_parameter_manager import EnvironmentParameterManager  # noqa: E402
from mlagents.trainers.settings import RunOptions, TorchSettings  # noqa: E402
from mlagents.trainers.simple_env_manager import SimpleEnvManager  # noqa: E402
from mlagents.trainers.trainer import TrainerFactory  # noqa: E402
from mlagents.trainers.trainer_controller import TrainerController  # noqa: E402
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel  # noqa: E402
from stand_in import StandInSoccerTwos  # noqa: E402

BEHAVIOR = "SoccerTwos"
SEED = 1


@dataclass(frozen=True)
class Mark:
    """The meters at the end of an update, all counted from the start."""

    wall_s: float
    cpu_s: float
    learn_cpu_s: float
    trained_agent_steps: int
    env_agent_steps: int

    def since(self, earlier: Mark) -> Mark:
        """What passed between two marks."""
        later, before = asdict(self), asdict(earlier)
        return Mark(**{name: later[name] - before[name] for name in later})


class CountingEnvManager(SimpleEnvManager):  # type: ignore[misc]
    """ML-Agents' in-process manager, counting the decisions that pass through it."""

    env_agent_steps = 0

    def process_steps(self, new_steps: list[EnvironmentStep]) -> int:
        for step in new_steps:
            self.env_agent_steps += sum(len(decisions) for decisions, _ in step.current_all_step_result.values())
        return int(super().process_steps(new_steps))


class UpdateMeter:
    """Stands in for a trainer's `_update_policy`: calls it, and notes the meters when it returns."""

    def __init__(self, learner: Any, manager: CountingEnvManager) -> None:
        self.marks: list[Mark] = []
        self._learner = learner
        self._manager = manager
        self._update: Callable[[], bool] = learner._update_policy
        self._learn_cpu_s = 0.0
        self._trained = 0

    def __call__(self) -> bool:
        started = time.process_time()
        self._trained += self._learner.update_buffer.num_experiences
        updated = self._update()
        now = time.process_time()
        self._learn_cpu_s += now - started
        self.marks.append(
            Mark(time.perf_counter(), now, self._learn_cpu_s, self._trained, self._manager.env_agent_steps)
        )
        return updated


def build(options: RunOptions, matches: int, folder: str) -> tuple[TrainerController, CountingEnvManager]:
    """ML-Agents put together the way its own command does it, minus the Unity process."""
    parameters = EnvironmentParameterManager(options.environment_parameters, SEED, restore=False)
    factory = TrainerFactory(options.behaviors, folder, True, False, SEED, parameters)
    controller = TrainerController(factory, folder, "peer", parameters, True, SEED)
    return controller, CountingEnvManager(StandInSoccerTwos(matches, SEED), EnvironmentParametersChannel())


def run_cycles(controller: TrainerController, manager: CountingEnvManager, cycles: int) -> list[Mark]:
    """One warm-up cycle and `cycles` measured ones; returns what each of the latter took."""
    controller._reset_env(manager)  # creates the trainers
    learner = controller.trainers[BEHAVIOR].trainer  # inside the ghost trainer
    meter = learner._update_policy = UpdateMeter(learner, manager)
    while len(meter.marks) <= cycles:
        for _ in range(controller.advance(manager)):
            controller.reset_env_if_ready(manager)
    return [later.since(earlier) for earlier, later in zip(meter.marks, meter.marks[1:], strict=False)]


def report(cycles: list[Mark], arguments: argparse.Namespace, load_before: float) -> dict[str, object]:
    """The result as one JSON object; the rate is the median over the cycles."""
    rates = [c.trained_agent_steps / c.cpu_s for c in cycles]
    return {
        "program": "ML-Agents 1.1.0",
        "trainer": arguments.trainer,
        "matches": arguments.matches,
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "trained_agent_steps_per_cpu_s": statistics.median(rates),
        "trained_agent_steps_per_s": statistics.median(c.trained_agent_steps / c.wall_s for c in cycles),
        "env_agent_steps_per_cpu_s": statistics.median(c.env_agent_steps / c.cpu_s for c in cycles),
        "learn_share": statistics.median(c.learn_cpu_s / c.cpu_s for c in cycles),
        "cycles": [asdict(c) for c in cycles],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_average": [load_before, os.getloadavg()[0]],
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure ML-Agents 1.1.0's trainer; prints one line of JSON.")
    parser.add_argument("--trainer", choices=["poca", "ppo"], default="poca")
    parser.add_argument("--matches", type=int, default=8, help="pitches side by side; Unity's executable holds 8")
    parser.add_argument("--cycles", type=int, default=2, help="measured collect + learn cycles, after one warm-up")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("stock.yaml"), help="run file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    load_before = os.getloadavg()[0]
    logging.disable(logging.WARNING)
    register_trainer_plugins()
    torch_utils.set_torch_config(TorchSettings(device="cpu"))
    torch.set_num_threads(arguments.threads)
    run_file = yaml.safe_load(arguments.config.read_text())
    run_file["behaviors"][BEHAVIOR]["trainer_type"] = arguments.trainer
    with tempfile.TemporaryDirectory() as folder:
        controller, manager = build(RunOptions.from_dict(run_file), arguments.matches, folder)
        cycles = run_cycles(controller, manager, arguments.cycles)
    print(json.dumps(report(cycles, arguments, load_before)))


if __name__ == "__main__":
    main()
