"""What plays the members of a league in a run's rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from palus.arena.models.players import Bot, ModelPlayer
from palus.envs.arena_game import BotAct
from palus.export.policy_file import PolicyFile
from palus.league.members import Member
from palus.nn.graph import FORBIDDEN
from palus.nn.network import Network
from palus.nn.place import Placement
from palus.rollout.acting import Policy
from palus.rollout.rollout import MEMBERS
from palus.run.members import Guest
from palus.trust import Trust


class AnsweringPolicy:
    """A player of the arena as a `palus.rollout.acting.Policy`: its probabilities become logits."""

    version, squash = 0, False

    def __init__(self, player: ModelPlayer) -> None:
        self.player, self.state_size = player, player.state_size

    def act(
        self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, None, Tensor]:
        """As `Policy.act`."""
        seen = {name: rows.numpy() for name, rows in observations.items()}
        asked = np.ascontiguousarray(states.numpy())
        probabilities, after = self.player.answer(seen, asked, None if masks is None else masks.numpy())
        with np.errstate(divide="ignore"):
            logits = np.maximum(np.log(probabilities), FORBIDDEN).astype(np.float32)
        return torch.from_numpy(logits), None, torch.from_numpy(np.asarray(after))


@dataclass(frozen=True)
class Guests:
    """The members of a league, with what plays them. policies: id -> behavior and policy; scripts: by id."""

    members: Sequence[Member]
    policies: Mapping[int, tuple[str, Policy]]
    scripts: Mapping[int, BotAct]

    @classmethod
    def of(cls, guests: Sequence[Guest], dtype: torch.dtype, place: Placement, trust: Trust) -> Guests:
        """Raises as `policy_of`. dtype: the number format of the run; place: where its networks lie."""
        numbered = dict(enumerate(guests, MEMBERS))
        played = {number: (guest.behavior, policy_of(guest, dtype, place, trust)) for number, guest in numbered.items()}
        return cls(
            [Member(number, guest.name, guest.behavior) for number, guest in numbered.items()],
            {number: (behavior, policy) for number, (behavior, policy) in played.items() if policy is not None},
            {number: guest.player.act for number, guest in numbered.items() if isinstance(guest.player, Bot)},
        )


def policy_of(guest: Guest, dtype: torch.dtype, place: Placement, trust: Trust) -> Policy | None:
    """What answers for a guest; None for a script. dtype, place: as in `Guests.of`.

    Raises ModelError, and TrustError where the network of its file needs code that nobody trusts.
    """
    player = guest.player
    if isinstance(player, Bot):
        return None
    if isinstance(player, PolicyFile):
        return Network.acting(player.spec, player.settings, player.arrays, dtype, trust=trust, place=place)
    return AnsweringPolicy(player)
