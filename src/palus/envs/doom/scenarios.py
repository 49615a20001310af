"""The Doom environments of Sample Factory by name: maps, settings, action spaces, rewards; and where the maps lie.

Settings are ours alone: the configuration files that come with ViZDoom give the same maps other buttons and rewards.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from palus.envs.doom import actions
from palus.envs.doom.actions import ActionLayout
from palus.envs.doom.rewards import BOTS, DUELS, Scheme
from palus.errors import EnvError, ScenarioError

SCENARIOS_VARIABLE = "PALUS_DOOM_SCENARIOS"
TICS_PER_SECOND = 35

BATTLE_VARIABLES = (
    *("POSITION_X", "POSITION_Y", "ANGLE"),
    *("SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "HEALTH", "USER2"),
)
CIG_VARIABLES = (*BATTLE_VARIABLES, "DEATHCOUNT", "FRAGCOUNT", "HITCOUNT", "DEAD")
DEATHMATCH_VARIABLES = (
    *(*CIG_VARIABLES, "ARMOR"),
    *(f"WEAPON{slot}" for slot in range(10)),
    *(f"AMMO{slot}" for slot in range(10)),
    *("ATTACK_READY", "DAMAGECOUNT", "PLAYER_NUMBER", "PLAYER_COUNT"),
    *(f"PLAYER{number}_FRAGCOUNT" for number in range(1, 10)),
)


@dataclass(frozen=True)
class Scenario:
    """A map and the engine's settings for it. Rewards as the engine counts them, times in tics (35 a second).

    variables: the engine's by their names, and `CELLS` last where a reward asks for it. living_reward: per tic.
    timeout: 0 for none; network games set their own. skill: 3 is the engine's default.
    """

    wad: str
    variables: tuple[str, ...]
    living_reward: float = 0.0
    death_penalty: float = 0.0
    skill: int = 3
    timeout: int = 2100
    start_tic: int = 1
    hud: bool = True
    crosshair: bool = False
    weapon: bool = True


def _battle(wad: str) -> Scenario:
    return Scenario(wad, BATTLE_VARIABLES, skill=2, crosshair=True)


def _deathmatch(wad: str, variables: tuple[str, ...] = DEATHMATCH_VARIABLES) -> Scenario:
    return Scenario(wad, variables, crosshair=True)


BASIC = Scenario(
    "basic.wad", ("AMMO2", "POSITION_X", "POSITION_Y", "ANGLE"), living_reward=-1, skill=5, timeout=300, start_tic=14
)
MY_WAY_HOME = Scenario("my_way_home.wad", ("AMMO0",), living_reward=-0.0001, skill=5, start_tic=10, hud=False)
DEADLY_CORRIDOR = Scenario("deadly_corridor.wad", ("HEALTH",), death_penalty=100, skill=5)
DEFEND_THE_CENTER = Scenario("defend_the_center.wad", ("AMMO2", "HEALTH"), death_penalty=1, start_tic=10)
DEFEND_THE_LINE = Scenario("defend_the_line.wad", ("AMMO2", "HEALTH"), death_penalty=1, timeout=0, start_tic=10)


@dataclass(frozen=True)
class DoomEnvironment:
    """One environment: who plays what for which reward.

    agents, bots: more than one player in all makes it a network game. limit: tics until the episode is truncated, 0 for
    none. gathering: +1 for every decision that raised the health. scheme: rewards for changes of variables.
    measurements: they are a second observation. objective: what `true_objective` is; engine = the sum of
    the engine's rewards, frags = FRAGCOUNT, won = 1 for being first alone. respawn_delay: seconds. timelimit: minutes
    of a network game. timeout_truncates: the engine's own time-out cuts an episode off instead of ending it by the
    rules. resolution: height and width of the observation. wide: draw 16:9 instead of a stretched 4:3. average: every
    pixel is the mean of the 2 x 2 drawn for it instead of one of them; for half the drawn height and width, EnvError
    for any other.
    """

    scenario: Scenario
    layout: ActionLayout
    agents: int = 1
    bots: int = 0
    reward_scale: float = 1.0
    limit: int = 0
    gathering: bool = False
    scheme: Scheme | None = None
    objective: Literal["", "engine", "frags", "won"] = ""
    frameskip: int = 4
    respawn_delay: int = 0
    measurements: bool = False
    timelimit: float = 4.0
    timeout_truncates: bool = False
    resolution: tuple[int, int] = (72, 128)
    wide: bool = False
    average: bool = False

    def __post_init__(self) -> None:
        (drawn_height, drawn_width), (height, width) = self.drawn, self.resolution
        if self.average and (drawn_height, drawn_width) != (2 * height, 2 * width):
            raise EnvError(
                f"average joins 2 x 2 of the {drawn_height} x {drawn_width} pixels drawn, which is not twice the "
                f"resolution {height} x {width}; give 72 x 128 with wide, 60 x 80 without"
            )

    @property
    def drawn(self) -> tuple[int, int]:
        """Height and width that the engine draws."""
        return (144, 256) if self.wide else (120, 160)

    @property
    def is_network_game(self) -> bool:
        """Whether the engine plays a deathmatch on the local machine."""
        return self.agents + self.bots > 1


def _gathering(wad: str, layout: ActionLayout) -> DoomEnvironment:
    acid = Scenario(wad, ("HEALTH",), living_reward=0.01, hud=False, weapon=False)
    return DoomEnvironment(acid, layout, gathering=True, objective="engine")


def _monsters(wad: str) -> DoomEnvironment:
    return DoomEnvironment(
        *(_battle(wad), actions.DISCRETIZED_NO_WEAPON),
        limit=2100,
        scheme=BOTS,
        objective="engine",
        measurements=True,
    )


def _against_bots(wad: str, layout: ActionLayout, bots: int) -> DoomEnvironment:
    return DoomEnvironment(
        *(_deathmatch(wad), layout),
        bots=bots,
        scheme=BOTS,
        objective="frags",
        frameskip=2,
        measurements=True,
    )


def _self_play(
    scenario: Scenario, layout: ActionLayout, agents: int, bots: int = 0, respawn_delay: int = 0
) -> DoomEnvironment:
    return DoomEnvironment(
        *(scenario, layout, agents, bots),
        scheme=DUELS,
        objective="won",
        frameskip=2,
        respawn_delay=respawn_delay,
        measurements=True,
    )


ENVIRONMENTS: dict[str, DoomEnvironment] = {
    "doom_basic": DoomEnvironment(BASIC, actions.STRAFE_ATTACK, reward_scale=0.01, limit=300),
    "doom_two_colors_easy": _gathering("two_colors_easy.wad", actions.BASIC),
    "doom_two_colors_hard": _gathering("two_colors_hard.wad", actions.BASIC),
    "doom_my_way_home": DoomEnvironment(MY_WAY_HOME, actions.BASIC),
    "doom_my_way_home_flat_actions": DoomEnvironment(MY_WAY_HOME, actions.MOVE),
    "doom_deadly_corridor": DoomEnvironment(DEADLY_CORRIDOR, actions.EXTENDED, reward_scale=0.01),
    "doom_defend_the_center": DoomEnvironment(DEFEND_THE_CENTER, actions.TURN_ATTACK),
    "doom_defend_the_center_flat_actions": DoomEnvironment(DEFEND_THE_CENTER, actions.TURN_OR_ATTACK),
    "doom_defend_the_line": DoomEnvironment(DEFEND_THE_LINE, actions.TURN_ATTACK),
    "doom_health_gathering": _gathering("health_gathering.wad", actions.MOVE),
    "doom_health_gathering_supreme": _gathering("health_gathering_supreme.wad", actions.MOVE),
    "doom_battle": _monsters("battle.wad"),
    "doom_battle2": _monsters("battle2.wad"),
    "doom_benchmark": DoomEnvironment(_battle("battle.wad"), actions.BENCHMARK, limit=2100),
    "doom_duel_bots": _against_bots("ssl2.wad", actions.FULL_USE, bots=1),
    "doom_deathmatch_bots": _against_bots("dwango5.wad", actions.FULL, bots=7),
    "doom_duel": _self_play(_deathmatch("ssl2.wad"), actions.FULL_USE, agents=2, respawn_delay=2),
    "doom_deathmatch_full": _self_play(_deathmatch("freedm.wad"), actions.FULL_USE, agents=4, bots=4, respawn_delay=2),
    "doom_dm": _self_play(_deathmatch("cig.wad", CIG_VARIABLES), actions.HYBRID, agents=8),
    "doom_dwango5": _self_play(_deathmatch("dwango5.wad"), actions.HYBRID, agents=8),
}
"""Everything that `palus.envs.doom.game.make` makes."""

STAND_INS = {"ssl2.wad": "multi_duel.wad", "dwango5.wad": "multi_deathmatch.wad", "freedm.wad": "multi_deathmatch.wad"}
"""Maps of ViZDoom's own package that a network game can be played on instead, when asked to."""


def find_wad(name: str) -> Path:
    """The map file of that name, from PALUS_DOOM_SCENARIOS, ViZDoom, or Sample Factory's wheel.

    Raises ScenarioError that says which package holds it. Nothing is imported from either package.
    """
    named = os.environ.get(SCENARIOS_VARIABLE)
    folders = [Path(named)] if named else []
    folders += _package_folder("vizdoom", "scenarios")
    folders += _package_folder("sf_examples", "vizdoom", "doom", "scenarios")
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).resolve()
    stand_in = f" Or play on ViZDoom's own map: option wad: {STAND_INS[name]}." if name in STAND_INS else ""
    raise ScenarioError(
        f"no map file {name} in {', '.join(map(str, folders)) or 'any known folder'}. The package sample-factory holds "
        f"those that vizdoom lacks (folder sf_examples/vizdoom/doom/scenarios): install it, or unpack its wheel and "
        f"point the environment variable {SCENARIOS_VARIABLE} at that folder.{stand_in}"
    )


def _package_folder(package: str, *parts: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    return [Path(location, *parts) for location in (found.submodule_search_locations or [])] if found else []
