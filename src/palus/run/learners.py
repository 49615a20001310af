"""The learners of a run as its file asks for them: one of a behavior, those of its population, or those of the league's
roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palus.config import Behavior, RunFile
from palus.config.league import Role
from palus.league.pools import Contender
from palus.league.population import PopulationLeague, with_numbers
from palus.learn import learner_class
from palus.learn.learner import Learner
from palus.learn.ranks import Ranks
from palus.run.computing import Computing
from palus.run.folder import RunFolder
from palus.run.trainee import PolicyRecord, Trainee
from palus.trust import Trust
from palus.types import GameSpec


def populations_of(
    run: RunFile, spec: GameSpec, names: Sequence[str], seed: int, first: int = 0
) -> dict[str, PopulationLeague]:
    """Those of these behaviors. first: how many behaviors there were before."""
    return {
        name: PopulationLeague(behavior.population, behavior, seed + number, spec.shaping)
        for number, (name, behavior) in enumerate(((name, run.behaviors[name]) for name in names), first)
        if behavior.population is not None
    }


@dataclass(frozen=True)
class LearnerMaker:
    """What all learners of a run have in common. seed: of the first policy's; others count on from it. own: by
    behavior, `palus.trainers`. beside: games are played while they learn."""

    own: Mapping[str, str]
    seed: int
    computing: Computing
    trust: Trust
    ranks: Ranks
    beside: bool

    def untrained(self, behavior: Behavior, spec: GameSpec, name: str, policy: int) -> Learner:
        """A learner as it is before it has learned anything. name: of the behavior; policy: its id."""
        computing = self.computing
        learner: Learner = learner_class(behavior.trainer_type, self.own.get(name), self.trust)(
            behavior, spec.behavior(name), computing.matmul.dtype, self.seed + policy, computing.threads,
            trust=self.trust, place=computing.place, ranks=self.ranks,
        )  # fmt: skip
        learner.device_steps.idle = computing.postponed.do
        if computing.matmul.name == "int16":
            learner.network.learn_in_int16()
        if computing.int8:
            learner.network.act_in_int8()
        return learner

    def trainees(
        self,
        run: RunFile,
        spec: GameSpec,
        folder: RunFolder,
        names: Sequence[str],
        populations: Mapping[str, PopulationLeague],
        first: int = 0,
    ) -> list[Trainee]:
        """The learners of these behaviors. first: the id of the first one."""
        found: list[Trainee] = []
        for name in names:
            behavior, roles = run.behaviors[name], run.learners_of(name)
            several = behavior.population is not None or len(roles) > 1
            for k, role in enumerate(roles):
                tuned: Behavior = behavior
                if behavior.population is not None:
                    tuned = with_numbers(behavior, populations[name].numbers[k])
                policy = first + len(found)
                learner = self.untrained(tuned, spec, name, policy)
                unit, strength = spec.frameskip if learner.counts_frames else None, behavior.extrinsic.strength
                record = PolicyRecord(learner.splits_rewards, unit, strength)
                own = folder.of(name) / f"policy_{k}" if several else folder.of(name)
                label, kind = _label(name, behavior, roles, k), spec.behavior(name).name
                acting = learner.network.twin() if self.beside else learner.network
                trainee = Trainee(policy, name, kind, label, behavior, learner, own, record, acting)
                trainee.number, trainee.role = k, role
                trainee.plays_only = run.checkpoint_settings.inference
                trainee.in_league = several and behavior.self_play is not None
                found.append(trainee)
        return found


def contender_of(trainee: Trainee) -> Contender:
    """A learner as the league sees it."""
    behavior = trainee.behavior
    mixes = behavior.population is None or behavior.population.mix_in_game
    return Contender(
        trainee.policy, trainee.kind, behavior.self_play, behavior.mirrors, behavior.max_steps, trainee.role, mixes
    )


def _label(name: str, behavior: Behavior, roles: Sequence[Role], number: int) -> str:
    """How lines call a learner: by its behavior, and by its number or its role where there are several."""
    if behavior.population is not None:
        return f"{name} policy {number}"
    if len(roles) == 1:
        return name
    role = roles[number]
    return f"{name} {role} {number - roles.index(role) + 1}" if roles.count(role) > 1 else f"{name} {role}"
