"""Two players against each other on the two teams of a game that talks (`palus.unity.news`): `palus match --env`.

Which of its matches are over, and who has won, is told by `palus.unity.squads`. Half of them are played with the
players in each other's place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from palus.arena.models.players import Bot, ModelPlayer, Team, load_player, member_for
from palus.arena.models.policies import Observations
from palus.arena.referee.result import Mode, PairingSummary
from palus.arena.referee.sampling import best, draw, entropy, is_distribution
from palus.config import load_run
from palus.config.source import Source
from palus.errors import EnvError, ModelError
from palus.ratings.interval import score_interval
from palus.run.talking import exchanges
from palus.trust import NOBODY
from palus.types import F32, I64, MASKS, BehaviorSpec, GameSpec
from palus.unity.discovery import TalkingSource
from palus.unity.news import TalkingGame, behavior_of
from palus.unity.squads import meetings

PATIENCE = 50_000
"""Messages without the end of a match after which a game counts as one that has none."""


@contextmanager
def opened(env: str, seed: int) -> Iterator[TalkingSource]:
    """The executable, started and looked at; it ends with the block. Raises ConfigError, EnvError, ProtocolError."""
    unknown = Source("no file", "default_settings: {trainer_type: ppo, self_play: {}}")
    with tempfile.TemporaryDirectory() as logs:
        places = {"env_settings.env_path": env, "env_settings.seed": seed, "checkpoint_settings.results_dir": logs}
        run = load_run(unknown, ["env_settings.base_port=0", *(f"{key}={value}" for key, value in places.items())])
        with closing(TalkingSource(run, NOBODY)) as source:
            yield source


def players_of(words: Sequence[str], spec: GameSpec) -> list[ModelPlayer | Team]:
    """As `load_player` finds them for a game that was met just now; scripted ones read another. Raises ModelError."""
    met = replace(spec, env_id=f"the executable {spec.env_id}")
    found = [load_player(word, met) for word in words]
    return [player for player in found if not isinstance(player, Bot)]


@dataclass
class _Seat:
    """A player in the place of a behavior id. entropies: of its team's answers."""

    player: ModelPlayer
    name: str
    spec: BehaviorSpec
    mode: Mode
    random: np.random.Generator
    entropies: list[float]

    @property
    def state_size(self) -> int:
        return self.player.state_size

    def __call__(self, observations: Observations, states: F32, episodes: I64, decisions: I64) -> tuple[F32, F32]:
        """As `palus.run.evaluate.Decide`."""
        seen, branches = dict(observations), self.spec.branches
        masks = seen.pop(MASKS, None)
        answers, after = self.player.answer(seen, states, None if masks is None else masks.astype(np.bool_))
        if not is_distribution(answers, branches).all():
            raise ModelError(
                f"{self.player.name}: its answers to what {self.name} sees are no probabilities; play another file"
            )
        self.entropies.append(float(entropy(answers).mean()))
        if self.mode == "greedy":
            return best(answers, branches).astype(np.float32), after
        return draw(answers, self.random.random((len(states), len(branches))), branches).astype(np.float32), after


@dataclass(frozen=True)
class PlayedLeg:
    """first: points of the first team in each match; decisions: of each; entropies: by team, in nats."""

    first: list[float]
    decisions: list[int]
    entropies: Mapping[int, list[float]]


def play_leg(
    game: TalkingGame,
    sides: Mapping[int, ModelPlayer | Team],
    matches: int,
    seed: int,
    *,
    mode: Mode = "stochastic",
    progress: Callable[[int], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> PlayedLeg:
    """Play so many matches, or some more that end with the last. sides: by team, in order. stopped: asked before every
    message.

    Raises EnvError where no match ends, ModelError for answers that are no probabilities, and what the game raises.
    """
    leg, random = PlayedLeg([], [], {team: [] for team in sides}), np.random.default_rng(seed)

    def decides(name: str, spec: BehaviorSpec) -> _Seat:
        behavior, team = behavior_of(name)
        return _Seat(member_for(sides[team], behavior), name, spec, mode, random, leg.entropies[team])

    done, idle, unpaired = 0, 0, 0
    for ended, there, _ in exchanges(game, seed, decides):
        found = meetings(ended, there, list(sides))
        if found is None:
            unpaired += len({one.squad for one in ended} - there)
        leg.first.extend(match.points[0] for match in found or ())
        leg.decisions.extend(match.decisions for match in found or ())
        fresh = min(len(leg.first), matches) - done
        done, idle = done + fresh, 0 if fresh else idle + 1
        if fresh and progress is not None:
            progress(fresh)
        if done == matches or (stopped is not None and stopped()):
            break
        if idle > PATIENCE:
            raise EnvError(
                f"{PATIENCE} messages, and no match has ended: a group, or an agent without one, of both teams has to "
                f"end in the same message ({unpaired} ended without a rival)"
            )
    return leg


def play_match(
    source: TalkingSource,
    a: ModelPlayer | Team,
    b: ModelPlayer | Team,
    pairs: int,
    seed: int,
    *,
    mode: Mode = "stochastic",
    progress: Callable[[int], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> PairingSummary:
    """So many matches with A as the first team, then as many with A as the second. pairs: of one of each; those whose
    second one was not played do not count. `mean_steps` are decisions. Arguments and errors as of `play_leg`."""
    teams = sorted({behavior_of(agent.name)[1] for agent in source.spec.agents})
    if len(teams) != 2:
        there = " and ".join(agent.name for agent in source.spec.agents)
        raise EnvError(f"{source.spec.env_id} has {there}; a match needs two teams")
    one, two = (
        play_leg(
            source.games[0], dict(zip(teams, players, strict=True)), pairs, seed + leg,
            mode=mode, progress=progress, stopped=stopped,
        )
        for leg, players in enumerate(((a, b), (b, a)))
    )  # fmt: skip
    played = min(len(one.first), len(two.first), pairs)
    points = np.array([one.first[:played], [1.0 - own for own in two.first[:played]]])
    entropies = [
        [*one.entropies[first], *two.entropies[second]] for first, second in (teams, reversed(teams))
    ]  # fmt: skip
    return PairingSummary(
        score=float(points.mean()) if played else 0.5,
        interval=score_interval(points.mean(0)),
        wins=int((points == 1.0).sum()),
        draws=int((points == 0.5).sum()),
        losses=int((points == 0.0).sum()),
        pairs=played,
        mean_steps=float(np.mean([*one.decisions, *two.decisions])) if played else 0.0,
        entropy_a=float(np.mean(entropies[0])) if entropies[0] else None,
        entropy_b=float(np.mean(entropies[1])) if entropies[1] else None,
    )
