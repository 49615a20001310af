"""One agent of a Doom game: its engine, what it last saw, and what it has earned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import vizdoom

from palus.envs.doom.engine import Engine
from palus.envs.doom.multiplayer import NetworkGame, standing
from palus.envs.doom.rewards import CELLS, Shaping, gathering_reward, square
from palus.envs.doom.scenarios import DoomEnvironment
from palus.types import F64, AnyArray


@dataclass(frozen=True)
class EngineSeat:
    """What an engine is told at its start. network, number: the network game and the player's number in it."""

    environment: DoomEnvironment
    wad: Path
    network: NetworkGame | None = None
    number: int = 0

    def build(self, seed: int) -> Any:
        """ViZDoom's handle, set up and not yet started."""
        scenario, layout = self.environment.scenario, self.environment.layout
        height, width = self.environment.drawn
        game = vizdoom.DoomGame()
        game.set_doom_scenario_path(str(self.wad))
        game.set_doom_map("map01")
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{width}X{height}"))
        game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)
        game.set_window_visible(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in layout.buttons])
        told = [name for name in scenario.variables if name != CELLS]  # by the engine itself
        game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in told])
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


class DoomPlayer:
    """A running seat. screen: [3, height, width] uint8, the last picture there was.

    reward: of the latest decision, unscaled; objective: the engine's rewards of this episode. timed_out: the
    engine's own limit ended it.
    """

    def __init__(self, seat: EngineSeat, engine: Engine, numbers: F64) -> None:
        """numbers: the shaping's, read anew at every step."""
        scenario, scheme = seat.environment.scenario, seat.environment.scheme
        self.seat, self.engine = seat, engine
        self.shaping = Shaping(scheme, scenario.variables, numbers) if scheme else None
        self.screen: AnyArray = np.zeros((3, 1, 1), np.uint8)
        self.variables: F64 = np.zeros(0)
        self.reward = 0.0
        self._health = scenario.variables.index("HEALTH") if seat.environment.gathering else None
        self._counts_squares = CELLS in scenario.variables

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
        self._squares: set[tuple[int, int]] = set()
        self._look()

    def advance(self, buttons: list[float], tics: int) -> None:
        """Hold buttons for some tics of the current decision; more calls may follow before `conclude`."""
        if not self.finished:
            game = self.engine.game
            self.reward += game.make_action(buttons, tics)
            self.finished = game.is_episode_finished()

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
        if self._counts_squares:
            self._squares.add(square(self.variable("POSITION_X"), self.variable("POSITION_Y")))
            self.variables = np.append(self.variables, len(self._squares))

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
        players = max(round(self.variable("PLAYER_COUNT")), 1)
        frags = [self.variable(f"PLAYER{number}_FRAGCOUNT") for number in range(1, players + 1)]
        deaths = self.variable("DEATHCOUNT") - self._deaths_before
        return standing(round(self.variable("PLAYER_NUMBER")), frags, deaths, kind)
