"""Network games on the local machine: how engines find each other, bots, and who won.

One engine hosts, the others join it over UDP on the loopback address; every engine waits for the others' tics, so calls
to them must be made side by side, one thread each.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palus.envs.doom.scenarios import TICS_PER_SECOND, DoomEnvironment

HOST = "127.0.0.1"
RULES = (
    "-deathmatch +sv_forcerespawn 1 +sv_noautoaim 1 +sv_respawnprotect 1 +sv_spawnfarthest 1 +sv_nocrouch 1 "
    "+sv_nojump 1 +sv_nofreelook 1 +sv_noexit 1"
)
CONNECT_S = 10


@dataclass(frozen=True)
class NetworkGame:
    """The deathmatch of an environment: an engine for each of its agents, and its bots."""

    environment: DoomEnvironment
    port: int

    @property
    def timeout(self) -> int:
        """Length of a match in tics."""
        return round(self.environment.timelimit * 60 * TICS_PER_SECOND)

    def arguments(self, player: int) -> str:
        """Arguments for the engine of one agent; agent 0 hosts."""
        name = f"+name AI{player} +colorset 0 +viz_connect_timeout {CONNECT_S}"
        if player:
            return f"-join {HOST}:{self.port} {name}"
        return (
            f"-host {self.environment.agents} -port {self.port} {RULES} +timelimit {self.environment.timelimit} "
            f"+viz_respawn_delay {self.environment.respawn_delay} {name}"
        )

    def call_bots(self, host: Any) -> None:
        """Replace all bots by new ones, drawn by the engine from its own list."""
        host.send_game_command("removebots")
        for _ in range(self.environment.bots):
            host.send_game_command("addbot")


def free_port() -> int:
    """A UDP port that is free now; a start that loses it to somebody else is repeated with another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def standing(player: int, frags: Sequence[float], deaths: float, objective: str) -> dict[str, float]:
    """How one player stands among all. frags: of every player, bots included, in the engine's order.

    true_objective: own frags or 1 for being first alone, as `DoomEnvironment.objective` says.
    final_place: 1 is the best, shared by ties. leader_gap: to the best of the others, negative for who is first alone.
    """
    others = [count for number, count in enumerate(frags) if number != player]
    own = frags[player]
    gap = max(others) - own if others else 0.0
    return {
        "true_objective": own if objective == "frags" else float(gap < 0),
        "frags": own,
        "deaths": deaths,
        "kdr": own / (deaths + 1),
        "final_place": 1.0 + sum(count > own for count in others),
        "leader_gap": gap,
    }
