"""A stranger's model, checked and opened, as the locked process sees it: rows of questions in, rows of answers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from palus.arena.locked.probe import probe_observations, probe_rows
from palus.arena.locked.tasks import Contract
from palus.arena.models.duelist_file import choices_of, read_duelist
from palus.arena.models.duelist_session import DuelistSession, Rows
from palus.arena.models.policies import PolicySession
from palus.arena.models.policy_file import read_policy
from palus.arena.models.rules import ARENA_RULES, DUEL_RULES
from palus.types import F32, AnyArray, BehaviorSpec, GameSpec


@dataclass(frozen=True)
class OpenedModel:
    """game: what it plays. choices: of each branch or part. state_size: numbers that it remembers.

    columns, dtype: of a row of questions. probes: makes rows to examine it with. answer: rows of questions ->
    [rows, sum(choices) + state_size]. graph: what of the file is run. facts: what there is to say of it.
    """

    game: str
    choices: tuple[int, ...]
    state_size: int
    columns: int
    dtype: type[np.generic]
    probes: Callable[[np.random.Generator], AnyArray]
    answer: Callable[[AnyArray], F32]
    graph: bytes
    facts: dict[str, object]

    def probabilities(self, questions: AnyArray) -> F32:
        """The answers without the memory."""
        return self.answer(questions)[:, : sum(self.choices)] if self.state_size else self.answer(questions)


def open_model(data: bytes, contract: Contract) -> OpenedModel:
    """Check a file by the arena's rules and open it. Raises RefusedError."""
    return _open_duelist(data, contract) if isinstance(contract, GameSpec) else _open_policy(data, contract)


def _open_policy(data: bytes, behavior: BehaviorSpec) -> OpenedModel:
    graph = read_policy(data, "", behavior, ARENA_RULES)
    return OpenedModel(
        game=behavior.name,
        choices=behavior.branches,
        state_size=0,
        columns=behavior.observation_size,
        dtype=np.float32,
        probes=lambda rng: probe_observations(behavior, rng),
        answer=PolicySession(graph, behavior, "").probabilities,
        graph=graph.model,
        facts={"nodes": graph.nodes, "parameters": graph.parameters, "opset": graph.opset, "producer": graph.producer},
    )


def _open_duelist(data: bytes, spec: GameSpec) -> OpenedModel:
    graph = read_duelist(data, "", spec, DUEL_RULES)
    session, rows = DuelistSession(graph, ""), Rows(spec, graph.state_size)

    def answer(questions: AnyArray) -> F32:
        probabilities, states = session.answer(*rows.unpack(questions))
        return np.concatenate([probabilities, states], axis=1) if graph.state_size else probabilities

    return OpenedModel(
        game=spec.env_id,
        choices=choices_of(spec.actions),
        state_size=graph.state_size,
        columns=rows.question_bytes,
        dtype=np.uint8,
        probes=lambda rng: probe_rows(rows, rng),
        answer=answer,
        graph=graph.model,
        facts={"nodes": graph.nodes, "parameters": graph.parameters, "opset": graph.opset, "producer": graph.producer},
    )
