"""Remakes these files with ML-Agents 1.1.0 itself: a checkpoint of each trainer, its own ONNX file of the same weights,
and what its networks answer to a few inputs. In `optimizers/` checkpoints after one step of every optimiser, whose
gradient is the parameter itself at a learning rate of 0: moments are then known number by number. In `signals/`
checkpoints with the networks of curiosity, RND and GAIL, and what these pay. Runs in ML-Agents' environment
(benchmarks/peer), with onnx:

    python tests/run/data/mlagents/remake.py [CASE ...]
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from mlagents.trainers.buffer import AgentBuffer, BufferKey
from mlagents.trainers.model_saver.torch_model_saver import TorchModelSaver
from mlagents.trainers.poca.optimizer_torch import POCASettings, TorchPOCAOptimizer
from mlagents.trainers.policy.torch_policy import TorchPolicy
from mlagents.trainers.ppo.optimizer_torch import PPOSettings, TorchPPOOptimizer
from mlagents.trainers.sac.optimizer_torch import SACSettings, TorchSACOptimizer
from mlagents.trainers.settings import (
    CuriositySettings,
    EncoderType,
    GAILSettings,
    NetworkSettings,
    RewardSignalType,
    RNDSettings,
    TrainerSettings,
)
from mlagents.trainers.torch_entities.agent_action import AgentAction
from mlagents.trainers.torch_entities.components.reward_providers import gail_reward_provider
from mlagents.trainers.torch_entities.networks import SimpleActor
from mlagents.trainers.trajectory import ObsUtil
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

HERE, ROWS, STEP = Path(__file__).parent, 6, 1234
NONE, MOVED, MANY = (
    DimensionProperty.NONE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.VARIABLE_SIZE,
)
KINDS = {1: (NONE,), 2: (MANY, NONE), 3: (NONE, MOVED, MOVED)}


def seen(*shapes, goal=()):
    kinds = [ObservationType.GOAL_SIGNAL if i in goal else ObservationType.DEFAULT for i in range(len(shapes))]
    return [ObservationSpec(s, KINDS[len(s)], k, f"o{i}") for i, (s, k) in enumerate(zip(shapes, kinds, strict=True))]


def network(**more):
    return NetworkSettings(hidden_units=8, num_layers=2, normalize=True, **more)


MEMORY = NetworkSettings.MemorySettings(sequence_length=4, memory_size=8)
CASES = {
    "ppo": (
        TorchPPOOptimizer,
        PPOSettings(),
        network(memory=MEMORY),
        seen((3,), (1, 20, 20), (2,), (2,), goal=(2,)),
        ActionSpec(2, (2, 3)),
    ),
    "poca": (TorchPOCAOptimizer, POCASettings(), network(), seen((3,), (2,)), ActionSpec(1, (3,))),
    "poca_memory": (TorchPOCAOptimizer, POCASettings(), network(memory=MEMORY), seen((3,), (2,)), ActionSpec(1, (3,))),
    "sac": (TorchSACOptimizer, SACSettings(), network(memory=MEMORY), seen((3,), (2,)), ActionSpec(2, (2, 3))),
    "entities": (
        TorchPPOOptimizer,
        PPOSettings(shared_critic=True),
        network(),
        seen((3,), (4, 2), (3, 3)),
        ActionSpec(0, (3,)),
    ),
}

SMALL = NetworkSettings(hidden_units=4, num_layers=1, normalize=True)
STEPPED = {
    "ppo": (TorchPPOOptimizer, PPOSettings(), SMALL, seen((3,)), ActionSpec(2, (2,))),
    "poca": (TorchPOCAOptimizer, POCASettings(), SMALL, seen((3,)), ActionSpec(2, (2,))),
    "sac": (TorchSACOptimizer, SACSettings(), SMALL, seen((3,)), ActionSpec(2, (2,))),
}


def make(name, case, generator, signals=None):
    """Policy, optimizer and what saves them, with weights that are all different. signals: settings of reward signals
    beside the game's own."""
    optimizer_class, hyper, settings, shown, actions = case
    trainer = TrainerSettings(
        trainer_type={"ppo": "ppo", "sac": "sac", "entities": "ppo"}.get(name, "poca"),
        **({} if signals is None else {"reward_signals": signals}),
        hyperparameters=hyper,
        network_settings=settings,
    )
    squash = {"conditional_sigma": name == "sac", "tanh_squash": name == "sac"}
    actor = SimpleActor
    if name == "entities":
        from mlagents.trainers.torch_entities.networks import SharedActorCritic

        actor, squash = SharedActorCritic, squash | {"stream_names": ["extrinsic"]}
    policy = TorchPolicy(1, BehaviorSpec(shown, actions), settings, actor, squash)
    optimizer = optimizer_class(policy, trainer)
    saver = TorchModelSaver(trainer, str(HERE))
    saver.register(policy)
    saver.register(optimizer)
    modules = [m for m in saver.modules.values() if isinstance(m, torch.nn.Module)]
    with torch.no_grad():
        for parameter in {p: None for m in modules for p in m.parameters() if p.requires_grad and p.ndim}:
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return policy, optimizer, saver


def step(name, generator):
    _, _, saver = make(name, STEPPED[name], generator)
    for optimizer in saver.modules.values():
        for group in optimizer.param_groups if isinstance(optimizer, torch.optim.Optimizer) else ():
            group["lr"] = 0.0
            for parameter in group["params"]:
                parameter.grad = parameter.detach().clone() if parameter.requires_grad else None
            optimizer.step()
    torch.save({k: m.state_dict() for k, m in saver.modules.items()}, HERE / "optimizers" / f"{name}.pt")


def save(name, generator):
    shown = CASES[name][3]
    policy, optimizer, saver = make(name, CASES[name], generator)
    buffer = AgentBuffer()
    draws = np.random.default_rng(1)
    for i, o in enumerate(shown):
        for _ in range(50):
            buffer[ObsUtil.get_name_at(i)].append(draws.normal(1.0, 2.0, o.shape).astype(np.float32))
    policy.actor.update_normalization(buffer)
    optimizer.critic.update_normalization(buffer)
    if name == "sac":
        for own in (optimizer.q_network.q1_network, optimizer.q_network.q2_network, optimizer.target_network):
            own.network_body.copy_normalization(policy.actor.network_body)
    policy.set_step(STEP)
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    torch.save({k: m.state_dict() for k, m in saver.modules.items()}, HERE / f"{name}.pt")
    saver.export(str(HERE / name), name)
    obs = [draws.normal(1.0, 2.0, (ROWS, *o.shape)) for o in shown]
    obs = [draws.random(x.shape) if x.ndim == 4 else x for x in obs]  # pictures are 0 to 1
    if name == "entities":
        obs[1][:, 2:], obs[2][0] = 0.0, 0.0  # absent
    obs = [x.astype(np.float32) for x in obs]
    return policy, optimizer, [torch.from_numpy(o) for o in obs], draws


@torch.no_grad()
def answers(name, policy, optimizer, obs, draws):
    found = {f"obs_{i}": o.numpy() for i, o in enumerate(obs)}
    spec = policy.behavior_spec.action_spec
    numbers = torch.from_numpy(draws.normal(size=(ROWS, spec.continuous_size)).astype(np.float32))
    chosen = [torch.from_numpy(draws.integers(0, n, (ROWS, 1))) for n in spec.discrete_branches]
    found["numbers"], found["chosen"] = numbers.numpy(), torch.cat(chosen, 1).numpy() if chosen else np.zeros((ROWS, 0))
    memory = torch.from_numpy(draws.uniform(-1, 1, (1, ROWS, policy.m_size or 0)).astype(np.float32))
    found["memory"] = memory[0].numpy()
    memory = memory if policy.m_size else None
    if name.startswith("poca"):
        group = [[o[k::2] for o in obs] for k in (0, 1)]  # agents 2 m and 2 m + 1 are group m
        acted = [AgentAction(numbers[k::2], [c[k::2, 0] for c in chosen]) for k in (0, 1)]
        own = None if memory is None else memory[:, ::2].contiguous()  # of the group
        found["value"] = optimizer.critic.critic_pass(group, own, 1)[0]["extrinsic"].numpy()
        for k in (0, 1):
            mates = [group[1 - k]], [acted[1 - k]]
            found[f"baseline_{k}"] = optimizer.critic.baseline(group[k], mates, own, 1)[0]["extrinsic"].numpy()
        return found
    values, after = optimizer.critic.critic_pass(obs, memory, 1)
    found["value"] = values["extrinsic"].numpy()
    if name == "ppo":
        found["critic_memory"] = after[0].numpy()
    if name == "sac":
        found["target"] = optimizer.target_network.critic_pass(obs, memory, 1)[0]["extrinsic"].numpy()
        q1, q2 = optimizer.q_network(obs, numbers, memories=memory, sequence_length=1)
        found["q1"], found["q2"] = q1["extrinsic"].numpy(), q2["extrinsic"].numpy()
    return found


FLAT = network(vis_encode_type=EncoderType.FULLY_CONNECTED)
SIGNALS = {
    "ppo": (TorchPPOOptimizer, PPOSettings(), FLAT, seen((3,), (1, 6, 6), (2,)), ActionSpec(2, (2, 3))),
    "sac": (TorchSACOptimizer, SACSettings(), network(), seen((3,), (2,)), ActionSpec(2, (2, 3))),
}


def signals(name, generator):
    """A checkpoint with the networks of all three signals, and what these pay for a few decisions."""
    gail_reward_provider.demo_to_buffer = lambda *given: (None, None)  # nothing is learned here
    settings, shown, actions = SIGNALS[name][2:]
    plain = network(vis_encode_type=settings.vis_encode_type)
    plain.normalize = False  # with GAIL it is the demonstrations'
    gail = GAILSettings(network_settings=plain, demo_path="none", use_actions=True, use_vail=name == "ppo")
    own = {
        RewardSignalType.CURIOSITY: CuriositySettings(network_settings=settings, strength=0.01),
        RewardSignalType.RND: RNDSettings(network_settings=settings),
        RewardSignalType.GAIL: gail,
    }
    policy, optimizer, saver = make(name, SIGNALS[name], generator, own)
    draws, batch = np.random.default_rng(3), AgentBuffer()
    found = {"numbers": draws.normal(size=(ROWS, actions.continuous_size)).astype(np.float32)}
    found["chosen"] = np.stack([draws.integers(0, n, ROWS) for n in actions.discrete_branches], 1).astype(np.float32)
    found["ended"] = np.arange(ROWS) == ROWS - 1
    for i, o in enumerate(shown):
        for key, own_key in ((f"obs_{i}", ObsUtil.get_name_at(i)), (f"next_{i}", ObsUtil.get_name_at_next(i))):
            found[key] = draws.random((ROWS, *o.shape)).astype(np.float32)
            batch[own_key].extend(found[key])
    batch[BufferKey.CONTINUOUS_ACTION].extend(found["numbers"])
    batch[BufferKey.DISCRETE_ACTION].extend(found["chosen"])
    batch[BufferKey.DONE].extend(found["ended"].astype(np.float32))
    providers = optimizer.reward_signals
    providers["curiosity"]._has_updated_once = True
    for network_of_its in (providers["rnd"]._training_network, providers["rnd"]._random_network):
        network_of_its._encoder.update_normalization(batch)
        network_of_its._encoder.update_normalization = lambda batch: None
    found |= {f"pay_{key}": own.evaluate(batch) for key, own in providers.items() if key != "extrinsic"}
    with torch.no_grad():
        guess = providers["curiosity"]._network.predict_action(batch)
    found |= {"guessed_numbers": guess.continuous.numpy(), "guessed_chances": guess.discrete.numpy()}
    policy.set_step(STEP)
    torch.save({k: m.state_dict() for k, m in saver.modules.items()}, HERE / "signals" / f"{name}.pt")
    return found


for name in sys.argv[1:] or CASES:
    generator = torch.Generator().manual_seed(len(name))
    np.savez(HERE / f"{name}.npz", **answers(name, *save(name, generator)))
for name in STEPPED if len(sys.argv) == 1 else ():
    step(name, torch.Generator().manual_seed(7))
for name in SIGNALS if len(sys.argv) == 1 else ():
    np.savez(HERE / "signals" / f"{name}.npz", **signals(name, torch.Generator().manual_seed(11)))
