"""One agent of a Doom game: its engine, what it last saw, and what it has earned."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import vizdoom

from palus.envs.doom.engine import Engine, start_engine
from palus.envs.doom.multiplayer import NetworkGame, read_standing
from palus.envs.doom.rewards import CELLS, Shaping, Trail, gathering_reward
from palus.envs.doom.scenarios import DoomEnvironment
from palus.types import F64, AnyArray

SIZES = {False: (120, 160), True: (144, 256)}
"""Height and width that the engine draws: narrow (4:3) and wide (16:9)."""


@dataclass(frozen=True)
class EngineSeat:
    """What an engine is told at its start. network, number: the network game and the player's number in it."""

    environment: DoomEnvironment
    wad: Path
    wide: bool
    network: NetworkGame | None = None
    number: int = 0

    def build(self, seed: int) -> Any:
        """ViZDoom's handle, set up and not yet started."""
        scenario, layout = self.environment.scenario, self.environment.layout
        height, width = SIZES[self.wide]
        game = vizdoom.DoomGame()
        game.set_doom_scenario_path(str(self.wad))
        game.set_doom_map("map01")
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{width}X{height}"))
        game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
        game.set_window_visible(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in layout.buttons])
        game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in scenario.engine_variables])
        game.set_living_reward(scenario.living_reward)
        game.set_death_penalty(scenario.death_penalty)
        game.set_doom_skill(scenario.skill)
        game.set_episode_start_time(scenario.start_tic)
        game.set_episode_timeout(scenario.timeout)
        game.set_render_hud(scenario.hud)
        game.set_render_crosshair(scenario.crosshair)
        game.set_render_weapon(scenario.weapon)
        game.set_render_decals(False)
        game.set_render_particles(False)
        game.set_seed(seed)
        if self.network is not None:
            game.set_episode_timeout(self.network.timeout)
            game.add_game_args(self.network.arguments(self.number))
        return game


@dataclass
class DoomPlayer:
    """A running seat. screen: [3, height, width] uint8, the last picture there was.

    reward: of the latest decision, unscaled; objective: the engine's rewards of this episode. timed_out: the
    engine's own limit ended it.
    """

    seat: EngineSeat
    engine: Engine
    shaping: Shaping | None = None
    screen: AnyArray = field(default_factory=lambda: np.zeros((3, 1, 1), np.uint8))
    variables: F64 = field(default_factory=lambda: np.zeros(0))
    reward: float = 0.0
    objective: float = 0.0
    finished: bool = False
    timed_out: bool = False
    _deaths_before: float = 0.0
    _health: int | None = None
    _trail: Trail | None = None

    @classmethod
    def start(cls, seat: EngineSeat, seed: int, what: str, numbers: F64) -> DoomPlayer:
        """Start the engine. numbers: the shaping's, read anew at every step. Raises EnvError when it does not start."""
        scenario, scheme = seat.environment.scenario, seat.environment.scheme
        player = cls(seat, start_engine(lambda: seat.build(seed), what))
        player.shaping = Shaping(scheme, scenario.variables, numbers) if scheme else None
        player._health = scenario.variables.index("HEALTH") if seat.environment.gathering else None
        player._trail = Trail() if CELLS in scenario.variables else None
        return player

    def begin(self, seed: int) -> None:
        """Start a new episode."""
        game = self.engine.game
        if self.seat.network is not None and self.seat.number == 0:
            self.seat.network.call_bots(game)
        game.set_seed(seed)
        game.new_episode()
        self.reward, self.objective = 0.0, 0.0
        self.finished = self.timed_out = False
        # The engine goes on counting deaths from one episode to the next.
        self._deaths_before = self.variable("DEATHCOUNT")
        if self.shaping:
            self.shaping.begin()
        if self._trail:
            self._trail.begin()
        self._look()

    def advance(self, buttons: list[float], tics: int) -> None:
        """Hold buttons for some tics of the current decision; more calls may follow before `conclude`."""
        if not self.finished:
            self.reward += self.engine.game.make_action(buttons, tics)
            self.finished = self.engine.game.is_episode_finished()

    def conclude(self, first: bool) -> None:
        """Take stock at the end of a decision. first: it was the episode's first, which is not shaped."""
        self.objective += self.reward
        if self.finished:
            game = self.engine.game
            self.timed_out = game.is_episode_timeout_reached() and not game.is_player_dead()
            return
        before = self.variables
        self._look()
        if self.shaping:
            self.reward += self.shaping.step(self.variables)
        if self._health is not None and not first:
            self.reward += gathering_reward(before[self._health], self.variables[self._health])

    def look(self) -> None:
        """Fetch the picture in the middle of a decision, for a video."""
        if not self.finished:
            self.screen = self.engine.game.get_state().screen_buffer

    def _look(self) -> None:
        state = self.engine.game.get_state()
        self.screen, self.variables = state.screen_buffer, state.game_variables
        if self._trail:
            cells = self._trail.visit(self.variable("POSITION_X"), self.variable("POSITION_Y"))
            self.variables = np.append(self.variables, cells)

    def variable(self, name: str) -> float:
        """One of the engine's variables, listed by the scenario or not; also after the end."""
        return float(self.engine.game.get_game_variable(getattr(vizdoom.GameVariable, name)))

    def stats(self) -> dict[str, float]:
        """Of an episode that ended now."""
        kind, stats = self.seat.environment.objective, dict[str, float]()
        if kind == "engine":
            stats = {"true_objective": self.objective}
        elif not kind and self.shaping:  # the return, without what a run file has put into it
            stats = {"true_objective": self.objective * self.seat.environment.reward_scale}
        if self.seat.network is None:
            return stats
        now = read_standing(self.variable, self._deaths_before)
        return {
            "true_objective": now.frags if kind == "frags" else float(now.won),
            "frags": now.frags,
            "deaths": now.deaths,
            "kdr": now.frags / (now.deaths + 1),
            "final_place": float(now.place),
            "leader_gap": now.gap,
        }
