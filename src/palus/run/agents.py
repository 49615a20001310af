"""From a folder to an agent that plays: runs of palus and experiments of Sample Factory alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from palus.config import AppoBehavior, RunFile, load_run
from palus.envs import GameSource
from palus.errors import CheckpointError
from palus.export.policy_file import PolicyFile, find_policies
from palus.nn.distributions import mode, sample, told
from palus.nn.network import Network
from palus.rollout.acting import decide
from palus.run.evaluate import Evaluation, evaluate
from palus.run.sf_checkpoint import is_sf_experiment, read_sf_agent
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, AnyArray, GameSpec

CONFIGURATION = "configuration.yaml"
Kind = Literal["latest", "best"]
Counted = Literal["frames", "steps"]


@dataclass(frozen=True)
class Playable:
    """What was trained and the game it plays.

    spec: of the game; policies: by its behaviors. steps: that they were trained for, the fewest of all; counted: what
    these are, engine frames or decisions of agents. kind: which of the run's policies they are. evaluate:
    `palus.run.evaluate.evaluate` in its game. source: of the game, None of one that talks. is_ours: palus trained them.
    """

    env_id: str
    spec: GameSpec
    policies: Mapping[str, Network]
    steps: int
    counted: Counted
    kind: Kind
    evaluate: Callable[..., Evaluation]
    source: GameSource | None = None
    is_ours: bool = True

    @property
    def unit(self) -> str:
        """Of what evaluations count: engine frames where a decision takes several."""
        return "decisions" if self.source is None or self.spec.frameskip == 1 else "frames"

    @cached_property
    def draws(self) -> bool:
        """Whether its game gives the picture of every engine frame."""
        if self.source is None:
            return False
        with closing(self.source.single()) as game:  # only asked what it is
            return hasattr(game, "recorder")

    def players(self, seed: int, deterministic: bool) -> dict[str, AgentPlayer]:
        """A player for every behavior."""
        return {name: AgentPlayer(policy, seed, deterministic) for name, policy in self.policies.items()}


class AgentPlayer:
    """A trained policy as a player. deterministic: the likeliest action instead of a drawn one.

    Draws are a function of seed, episode and decision: the same episodes come out however many games run side by side.
    """

    def __init__(self, policy: Network, seed: int, deterministic: bool = False) -> None:
        self.policy, self.seed, self.deterministic = policy, seed, deterministic
        self.state_size = policy.state_size

    def __call__(
        self, observations: Mapping[str, AnyArray], states: F32, episodes: I64, decisions: I64
    ) -> tuple[F32, F32]:
        """As `palus.run.evaluate.Decide`."""
        parameters, _, after = decide(self.policy, observations, states)
        actions = self.policy.spec.actions
        if self.deterministic:
            chosen = mode(parameters, actions)
        else:
            chosen, _, _ = sample(parameters, actions, self.seed, 0, (episodes << 32) | decisions)
        return told(chosen, actions, self.policy.squash), after


def open_agent(folder: Path, kind: Kind = "latest", trust: Trust = NOBODY) -> Playable:
    """The agent in a run's folder, a policy for each behavior, or in a Sample Factory experiment.

    kind: the newest policies, or those with the best score in training. trust: modules outside palus that the folder's
    files may name, for the game and the encoder: somebody else may have written them.
    Raises TrustError when they name others, CheckpointError when there is no agent, EnvError when its game cannot be
    made here, ModelError when the weights do not fit the network that the run file describes.
    """
    if is_sf_experiment(folder):
        theirs = read_sf_agent(folder, kind)
        source = GameSource(theirs.env_id, theirs.env_options, trust)
        (behavior,) = source.spec.behaviors
        policy = Network.acting(behavior, theirs.settings, theirs.arrays, trust=trust)
        return _playable(source, {behavior.name: policy}, theirs.steps, "frames", kind, is_ours=False)
    configuration = folder / CONFIGURATION
    if not configuration.is_file():
        raise CheckpointError(
            f"{folder}: no run of palus and no experiment of Sample Factory; expected {CONFIGURATION}, or config.json "
            "and checkpoint_p0. Give results/RUN_ID, or OWNER/NAME of a published agent"
        )
    run = load_run(configuration)
    if run.talks:
        raise CheckpointError(
            f"{folder}: trained in a Unity game, which palus enjoy and palus match play with --env; record "
            "experts with Unity's Demonstration Recorder"
        )
    if run.env_id is None:
        raise CheckpointError(f"{configuration}: names no game; set palus.env to the one it was trained in")
    ours, policies = find_policies(folder, kind), {}
    source = GameSource(run.env_id, run.palus.env_options, trust)
    for behavior in source.spec.behaviors:
        name = behavior.name or next(iter(run.behaviors))
        if name not in ours:
            raise CheckpointError(f"{folder}: no {kind} policy of {name} in it; train on, or take the latest")
        file = ours[name]
        if (behavior.observations, behavior.actions) != (file.spec.observations, file.spec.actions):
            raise CheckpointError(
                f"{folder}: {name} was trained on other observations or actions than {run.env_id} has with the options "
                f"{run.palus.env_options}; restore {CONFIGURATION}"
            )
        policies[behavior.name] = Network.acting(behavior, file.settings, file.arrays, trust=trust)
    return _playable(source, policies, min(file.steps for file in ours.values()), counted_of(run), kind, is_ours=True)


def counted_of(run: RunFile) -> Counted:
    """What the trainers of a run count as their steps."""
    return "frames" if any(isinstance(own, AppoBehavior) for own in run.behaviors.values()) else "steps"


def _playable(
    source: GameSource, policies: Mapping[str, Network], steps: int, counted: Counted, kind: Kind, *, is_ours: bool
) -> Playable:
    play = partial(evaluate, source.single)
    return Playable(source.env_id, source.spec, policies, steps, counted, kind, play, source, is_ours)


def model_of(policy: PolicyFile) -> bytes:
    """The ONNX model of a policy whose file holds none. Raises ModelError where its encoder does not write itself."""
    network = Network.acting(policy.spec, policy.settings, policy.arrays)
    model: bytes = network.onnx({"game": policy.env_id}).SerializeToString()
    return model
