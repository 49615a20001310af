"""Every trainer with every form of observation and action, over the adapter of `palus.unity.base_env`: each learns the
game that ML-Agents tests its own trainers with (`line_envs`). Solved, an episode pays 1; untrained, less than 0.

One table, `LESSONS`: a new trainer, network or signal adds rows.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_envs import Line, solved

from palus.config import load_run
from palus.train import Run
from palus.trust import Trust
from palus.unity.base_env import BaseEnvGame
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

PPO: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 64, "buffer_size": 1024, "learning_rate": 0.005, "learning_rate_schedule": "constant",
    },
    "network_settings": {"hidden_units": 32, "num_layers": 1},
    "time_horizon": 16,
}  # fmt: skip
SAC: dict[str, Any] = {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 64, "learning_rate": 0.005, "steps_per_update": 8, "init_entcoef": 0.1, "tau": 0.02,
        "buffer_init_steps": 256,
    },
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "time_horizon": 16,
}  # fmt: skip
POCA: dict[str, Any] = PPO | {
    "trainer_type": "poca",
    "hyperparameters": PPO["hyperparameters"] | {"buffer_size": 512, "learning_rate": 0.003},
}
APPO: dict[str, Any] = {
    "trainer_type": "appo",
    "hyperparameters": {
        "batch_size": 256,
        "buffer_size": 512,
        "learning_rate": 0.005,
        "learning_rate_schedule": "linear",
        "num_epoch": 2,
    },
    "network_settings": {"hidden_units": 32, "num_layers": 1},
    "time_horizon": 16,
}
MEMORY: dict[str, Any] = {"network_settings": {"memory": {"memory_size": 16, "sequence_length": 8}}}
LONG_MEMORY: dict[str, Any] = {"network_settings": {"memory": {"memory_size": 16, "sequence_length": 16}}}
SLOW: dict[str, Any] = {"hyperparameters": {"learning_rate": 0.001}}
CALM: dict[str, Any] = {"hyperparameters": {"learning_rate_schedule": "linear"}}
CALMER: dict[str, Any] = {"hyperparameters": {"learning_rate": 0.002, "learning_rate_schedule": "linear"}}
WIDE: dict[str, Any] = {"hyperparameters": {"learning_rate": 0.002, "beta": 0.02}}
EXPERT = "expert.demo"
"""Made for a lesson, in its folder."""
DISCRETE, CONTINUOUS = {"continuous": 0, "discrete": 1}, {"continuous": 1}
LONG, SHORT = {"stride": 0.8}, {"stride": 0.2}
"""In short strides, who is right by its number and wrong by its choice hardly ever turns back: ML-Agents' own tests
take long ones for both kinds of actions, too. Who must remember walks for longer than the goal is shown."""
HYBRID: dict[str, Any] = {"continuous": 1, "discrete": 1, **LONG}
VECTOR, PICTURE, ENTITIES = ({"observations": [form]} for form in ("vector", "picture", "entities"))
GROUPS, RECALL = {"teams": 8, "size": 2}, {"memory": True, **SHORT}
GOAL: dict[str, Any] = {"observations": ["vector", "vector"], "goals": [1]}
EVERYTHING: dict[str, Any] = {"observations": ["vector", "picture", "entities"]}
HYPER: dict[str, Any] = {"network_settings": {"goal_conditioning_type": "hyper"}}
GAIL: dict[str, Any] = {
    "reward_signals": {"gail": {"demo_path": EXPERT, "learning_rate": 0.001, "use_actions": True, "gamma": 0.7}}
}
"""It pays for every decision: who looks far ahead stays on the way."""
CURIOUS: dict[str, Any] = {"reward_signals": {"extrinsic": {}, "curiosity": {"strength": 0.02}}}
NOVELTY: dict[str, Any] = {"reward_signals": {"extrinsic": {}, "rnd": {"strength": 0.01}}}
CLONING: dict[str, Any] = {
    "reward_signals": {"extrinsic": {"strength": 0}},
    "behavioral_cloning": {"demo_path": EXPERT},
}
SOLVED = 0.8
"""Mean reward of the last hundred episodes."""


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        k: merged(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in over.items()
    }
    return base | both


@dataclass(frozen=True)
class Lesson:
    """behavior: of the run file. env: options of `line_envs.Line`. steps: trainer steps within which it is solved.

    fast: for every run of the tests, the others are `slow` and learn with several seeds.
    """

    behavior: dict[str, Any]
    env: dict[str, Any]
    steps: int
    fast: bool = False
    more: dict[str, Any] = field(default_factory=dict)


def encoded(encoder: str, form: str, steps: int, rate: float = 0.005) -> Lesson:
    """PPO with one of the encoders of pictures, which are of this form."""
    more = {"network_settings": {"vis_encode_type": encoder}, "hyperparameters": {"learning_rate": rate}}
    return Lesson(PPO, DISCRETE | {"observations": [form]}, steps, more=more)


LESSONS = {
    "ppo discrete": Lesson(PPO, DISCRETE, 5000, fast=True),
    "ppo continuous": Lesson(PPO, CONTINUOUS, 5000, fast=True),
    "ppo hybrid": Lesson(PPO, HYBRID, 7000),
    "ppo masked": Lesson(PPO, DISCRETE | {"masked": True}, 5000),
    "ppo picture discrete": Lesson(PPO, DISCRETE | PICTURE, 4000, fast=True),
    "ppo picture continuous": Lesson(PPO, CONTINUOUS | PICTURE, 7000),
    "ppo picture hybrid": Lesson(PPO, HYBRID | PICTURE, 12000),
    "ppo nature_cnn": encoded("nature_cnn", "large", 5000, 0.002),
    "ppo resnet": encoded("resnet", "picture", 6000, 0.001),
    "ppo match3": encoded("match3", "board", 6000, 0.001),
    "ppo fully_connected": encoded("fully_connected", "picture", 6000, 0.001),
    "ppo entities": Lesson(PPO, DISCRETE | ENTITIES, 5000),
    "ppo entities hybrid": Lesson(PPO, HYBRID | ENTITIES, 8000),
    "ppo everything": Lesson(PPO, HYBRID | EVERYTHING, 20000, more=CALMER),
    "ppo memory discrete": Lesson(PPO, DISCRETE | RECALL, 8000, more=MEMORY),
    "ppo memory continuous": Lesson(PPO, CONTINUOUS | RECALL, 16000, more=MEMORY),
    "ppo memory hybrid": Lesson(PPO, HYBRID | RECALL, 30000, more=LONG_MEMORY | WIDE),
    "ppo memory picture": Lesson(PPO, DISCRETE | PICTURE | RECALL, 12000, more=MEMORY | CALM),
    "ppo goal": Lesson(PPO, DISCRETE | GOAL, 5000, more=HYPER),
    "ppo goal hybrid": Lesson(PPO, HYBRID | GOAL, 8000, more=HYPER),
    "ppo goal beside": Lesson(
        PPO, DISCRETE | GOAL, 5000, more={"network_settings": {"goal_conditioning_type": "none"}}
    ),
    "sac discrete": Lesson(SAC, DISCRETE, 3000),
    "sac horizon": Lesson(SAC, DISCRETE, 5000, more={"time_horizon": 1000}),
    "sac continuous": Lesson(SAC, CONTINUOUS, 3000, fast=True),
    "sac hybrid": Lesson(SAC, HYBRID, 5000),
    "sac masked": Lesson(SAC, DISCRETE | {"masked": True}, 3000),
    "sac picture": Lesson(SAC, CONTINUOUS | PICTURE, 4000),
    "sac picture hybrid": Lesson(SAC, HYBRID | PICTURE, 12000),
    "sac entities": Lesson(SAC, DISCRETE | ENTITIES, 3000),
    "sac entities continuous": Lesson(SAC, CONTINUOUS | ENTITIES, 4000),
    "sac goal": Lesson(SAC, DISCRETE | GOAL, 3000, more=HYPER),
    "sac goal continuous": Lesson(SAC, CONTINUOUS | GOAL, 4000, more=HYPER),
    "sac memory": Lesson(SAC, DISCRETE | RECALL, 12000, more=MEMORY),
    "sac memory continuous": Lesson(SAC, CONTINUOUS | RECALL, 24000, more=MEMORY),
    "poca alone": Lesson(POCA, DISCRETE, 6000),
    "poca discrete": Lesson(POCA, DISCRETE | GROUPS, 6000, fast=True),
    "poca continuous": Lesson(POCA, CONTINUOUS | GROUPS, 12000),
    "poca hybrid": Lesson(POCA, HYBRID | GROUPS, 16000),
    "poca masked": Lesson(POCA, DISCRETE | GROUPS | {"masked": True}, 8000),
    "poca picture": Lesson(POCA, DISCRETE | GROUPS | PICTURE, 6000),
    "poca entities": Lesson(POCA, DISCRETE | GROUPS | ENTITIES, 8000),
    "poca goal": Lesson(POCA, DISCRETE | GROUPS | GOAL, 8000, more=HYPER),
    "poca picture hybrid": Lesson(POCA, HYBRID | GROUPS | PICTURE, 20000, more=merged(WIDE, SLOW)),
    "poca entities continuous": Lesson(POCA, CONTINUOUS | GROUPS | ENTITIES, 20000, more=SLOW),
    "poca goal continuous": Lesson(POCA, CONTINUOUS | GROUPS | GOAL, 16000, more=HYPER),
    "poca memory continuous": Lesson(POCA, CONTINUOUS | GROUPS | RECALL, 24000, more=MEMORY),
    "poca memory": Lesson(POCA, DISCRETE | GROUPS | RECALL, 16000, more=MEMORY),
    "appo discrete": Lesson(APPO, DISCRETE, 8000),
    "appo continuous": Lesson(APPO, CONTINUOUS, 8000),
    "appo memory": Lesson(APPO, DISCRETE | RECALL, 16000, more=MEMORY),
    "appo groups": Lesson(APPO, DISCRETE | GROUPS, 10000),
    "ppo gail discrete": Lesson(PPO, DISCRETE, 10000, more=GAIL),
    "ppo gail hybrid": Lesson(PPO, HYBRID, 12000, more=GAIL),
    "ppo gail cloning picture": Lesson(
        PPO, CONTINUOUS | PICTURE, 12000, more=GAIL | {"behavioral_cloning": {"demo_path": EXPERT}}
    ),
    "sac gail": Lesson(SAC, CONTINUOUS, 4000, more=GAIL),
    "poca gail": Lesson(POCA, DISCRETE | GROUPS, 10000, more=GAIL),
    "ppo curiosity discrete": Lesson(PPO, DISCRETE, 5000, more=CURIOUS),
    "ppo curiosity hybrid": Lesson(PPO, HYBRID, 8000, more=CURIOUS),
    "sac curiosity": Lesson(SAC, CONTINUOUS, 4000, more=CURIOUS),
    "poca curiosity": Lesson(POCA, DISCRETE | GROUPS, 8000, more=CURIOUS),
    "ppo rnd": Lesson(PPO, DISCRETE, 5000, more=NOVELTY),
    "sac rnd": Lesson(SAC, CONTINUOUS, 4000, more=NOVELTY),
    "poca rnd": Lesson(POCA, DISCRETE | GROUPS, 8000, more=NOVELTY),
    "poca cloning": Lesson(POCA, DISCRETE | GROUPS, 8000, more=CLONING),
    "sac cloning": Lesson(SAC, CONTINUOUS, 5000, more=CLONING),
    "ppo cloning": Lesson(PPO, HYBRID, 5000, more=CLONING),
    "ppo cloning memory": Lesson(PPO, DISCRETE | RECALL, 14000, more=merged(CLONING, MEMORY)),
}


def expert(folder: Path, options: dict[str, Any]) -> None:
    """200 decisions of one who knows the way."""
    env = Line(**options | {"teams": 1, "size": 1})
    game, episodes, steps = BaseEnvGame(env), list[ExpertEpisode](), list[tuple[Any, Any]]()
    game.reset({}, 0)
    game.receive()
    spec = game.behaviors["Line"]
    for deciding, ended, action in solved(env, 200):
        if len(ended):
            seen = {o.name: np.stack([step.obs[i][0] for step, _ in steps]) for i, o in enumerate(spec.observations)}
            acted = np.stack([np.concatenate([own.continuous[0], own.discrete[0]]) for _, own in steps])
            nothing = np.zeros(len(steps), np.float32)
            episodes.append(ExpertEpisode(seen, acted.astype(np.float32), None, nothing, nothing, False))
            steps = []
        steps.append((deciding, action))
    write_demonstrations(folder / EXPERT, spec, "expert", episodes)


def run_of(folder: Path, lesson: Lesson, seed: int, factory: str = "line_envs:Line") -> Run:
    """The lesson's run, to be closed. factory: makes its environment."""
    behavior = merged(lesson.behavior, lesson.more) | {"max_steps": lesson.steps, "summary_freq": 10**6}
    expert(folder, lesson.env)
    (folder / "run.yaml").write_text(json.dumps({
        "behaviors": {"Line": behavior},
        "env_settings": {"seed": seed},
        "checkpoint_settings": {"results_dir": str(folder), "run_id": "x"},
        "palus": {
            "env": "palus.unity.base_env:make", "env_options": {"factory": factory, **lesson.env},
            "threads": 1, "matmul": "highest",
        },
    }))  # fmt: skip
    trust = Trust(frozenset({factory.partition(":")[0]}))
    return Run(load_run(folder / "run.yaml"), trust=trust, log=lambda level, text: None)


def learned(folder: Path, lesson: Lesson, seed: int) -> float:
    """Train from nothing; the mean reward of the last hundred episodes."""
    with closing(run_of(folder, lesson, seed)) as run:
        while not run.finished:
            run.iterate()
    episodes = run.trainees[0].record.recent
    if lesson.env.get("size"):  # who leaves before the others is not told what their group reaches
        return float(np.mean([e.group_reward for e in episodes if e.group_reward]))
    return float(np.mean([e.reward for e in episodes]))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize("name", [name for name, lesson in LESSONS.items() if lesson.fast])
def test_a_lesson_is_learned(name: str, tmp_path: Path) -> None:
    assert learned(tmp_path, LESSONS[name], 1) > SOLVED


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_learned_with_any_seed(name: str, seed: int, tmp_path: Path) -> None:
    assert learned(tmp_path, LESSONS[name], seed) > SOLVED


def test_a_lesson_can_be_failed(tmp_path: Path) -> None:
    """Nobody who forgets knows the goal when it matters, and nobody who has hardly begun."""
    forgetful = Lesson(PPO, DISCRETE | RECALL, 5000)
    assert learned(tmp_path, forgetful, 1) < 0.6
    (tmp_path / "short").mkdir()
    assert learned(tmp_path / "short", Lesson(PPO, DISCRETE, 1000), 1) < 0.3
