"""How much can be won from a frozen policy: a best response is trained against it for a budget, and measured apart.

The response is an ordinary run (`palus.train.train`) whose league has one member, met in every match. Its snapshots are
the candidates: all play the same pairs, which gives the curve; the best of them then plays others, which chose nothing.
So what is reported is what one policy takes, a lower bound of what the best one takes, and no maximum of lucky draws.

Source: Timbers et al., Approximate exploitability: learning a best response, 2022 (Lanctot et al., A unified
game-theoretic approach to multiagent reinforcement learning, 2017, for NashConv).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from palus import __version__
from palus.arena.models.players import Bot, ModelPlayer, Player, team_of
from palus.arena.models.policies import OnnxPlayer, RandomPlayer, played_behaviors
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import PairingSummary, summarize
from palus.config import RunFile
from palus.config.environment import Curriculum, EnvironmentParameter
from palus.config.league import LeagueSettings
from palus.config.trainer import SelfPlay
from palus.envs import arena_games
from palus.errors import CheckpointError, ConfigError, EnvError, ModelError
from palus.export.policy_file import FILES, PolicyFile, read_policy
from palus.files import digest_of, write_bytes
from palus.hub.probe_file import PROBE, PROBE_PICTURE, Probe, ProbePoint, write_probe
from palus.run.folder import OwnFiles, RunFolder
from palus.run.members import find_guests
from palus.run.misfits import misfits
from palus.train import Run, TrainingResult, train
from palus.types import GameSpec

CURVE_POINTS = 12
"""Candidates that are measured, the untrained and the last one among them."""
SNAPSHOTS, NEWEST = 32, 4
"""That a response keeps of its whole past, and beside these of late."""
_FROZEN = ".probed"
"""Folder in the run's own of what is probed, as it was; hidden, so that nobody publishes it with the run."""


@dataclass(frozen=True)
class Budget:
    """Of a response. steps: trainer steps, None for the run file's; minutes: of wall time, 0 for no limit."""

    steps: int | None = None
    minutes: float = 0.0


@dataclass(frozen=True)
class Rival:
    """A frozen policy. word: what the league calls it; player: the same for the referee; behaviors: that it plays."""

    word: str
    player: Player
    behaviors: frozenset[str]
    sha256: str


def respond(
    model: str,
    run: RunFile,
    spec: GameSpec,
    behavior: str | None,
    budget: Budget,
    *,
    resume: bool = False,
    force: bool = False,
    on_start: Callable[[Run], None] = lambda parts: None,
) -> Response:
    """Train a best response against a model, in the folder that the run file names.

    model: player of the house, file or folder, as `palus match` takes them; it is copied first. behavior: which the
    response plays; None where only one can. resume, force: as in `train`.
    Raises what `train` raises, and ModelError or EnvError where that model cannot be probed in this game.
    """
    folder = RunFolder(Path(run.checkpoint_settings.results_dir) / run.checkpoint_settings.run_id, list(run.behaviors))
    rival = find_rival(model, spec)
    played = _behavior_of(rival, spec, behavior)
    faults = misfits(response_run(run, spec, played, rival, budget))
    if faults:  # before anything is written
        raise ConfigError(faults)
    started: list[Run] = []

    def note(parts: Run) -> None:
        started.append(parts)
        on_start(parts)

    with folder.held() as alone:  # what is copied is what is trained against
        if resume:
            folder.refuse_nothing()
        else:
            folder.refuse_existing(force=force)
        rival = find_rival(_freeze(model, folder.root, keep=resume), spec)
        planned = response_run(run, spec, played, rival, budget)
        result = train(planned, resume=resume, force=True, on_start=note, alone=alone)
    return Response(planned, spec, played, rival, folder, result, started[0].seed)


@dataclass(frozen=True)
class Response:
    """A trained response with what it was trained against. seed: of its run."""

    run: RunFile
    spec: GameSpec
    behavior: str
    rival: Rival
    folder: RunFolder
    result: TrainingResult
    seed: int

    @property
    def steps(self) -> int:
        """Of its training, by the trainer's count."""
        return max(self.candidates)

    @property
    def legs(self) -> tuple[int, ...]:
        """Of a pair, those in which the response has a side that its behavior plays."""
        return tuple(leg for leg, team in enumerate(self.spec.sides, 1) if self.behavior in _played_on(self.spec, team))

    @cached_property
    def candidates(self) -> dict[int, Path]:
        """Steps -> file, of what is kept of the response's past and the response itself, evenly over its steps."""
        own = self.folder.of(_name_of(self.run, self.behavior))
        files = {read_policy(path).steps: path for path in [*own.glob("snapshots/*.npz"), own / FILES["latest"]]}
        steps = np.array(sorted(files))
        wanted = np.linspace(steps[0], steps[-1], CURVE_POINTS)
        chosen = np.unique(np.abs(steps[:, None] - wanted).argmin(axis=0))
        return {int(steps[k]): files[int(steps[k])] for k in chosen}

    def matches(self, pairs: int) -> int:
        """How many `measure` plays."""
        return len(self.legs) * (len(self.candidates) * _of_curve(pairs) + pairs)

    def measure(
        self, pairs: int, progress: Callable[[int], None] | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Probe | None:
        """Choose the best candidate on the matches of the curve, and play it on `pairs` others.

        Nothing of a candidate depends on the seeds of either. None once `stopped` says so: matches that are over early
        would count too often. Raises EnvError when no match comes to a verdict, ModelError.
        """
        to_choose, to_tell = (int(s) for s in np.random.SeedSequence([self.seed, self.steps]).generate_state(2))
        play = partial(
            play_pairs, env_id=self.spec.env_id, env_options=self.run.palus.env_options, legs=self.legs,
            progress=progress, stopped=stopped,
        )  # fmt: skip
        points, candidates = [], self.candidates
        for steps, path in candidates.items():
            results = play(self._player(path), self.rival.player, _of_curve(pairs), to_choose)
            if stopped():
                return None
            points.append(_point(steps, summarize(results)))
        best = max(points, key=lambda point: (point.share, point.steps))
        results = play(self._player(candidates[best.steps]), self.rival.player, pairs, to_tell)
        if stopped():
            return None
        trainer = self.run.behaviors[_name_of(self.run, self.behavior)].trainer_type
        return Probe(
            self.spec.env_id, self.behavior, len(self.legs) == len(self.spec.sides), self.rival.sha256, trainer,
            self.steps, self.result.wall_seconds, self.seed, _point(best.steps, summarize(results)),
            tuple(points), __version__,
        )  # fmt: skip

    def _player(self, path: Path) -> Player:
        """A candidate; what it does not play is played by nobody in its legs."""
        members = {
            own.name: OnnxPlayer(path, own, "response") if own.name == self.behavior else RandomPlayer(own)
            for own in played_behaviors(self.spec)
        }
        return team_of(members, "response", None)

    def publish(self, probe: Probe, *folders: Path) -> None:
        """Write a probe into the response's folder and into others. Raises StorageError."""
        for folder in (self.folder.root, *folders):
            own = OwnFiles(folder)
            for name in (PROBE, PROBE_PICTURE):
                own.add(folder / name)
            write_probe(folder, probe)


def find_rival(word: str, spec: GameSpec) -> Rival:
    """Who is probed. Raises ModelError when there is nobody of that name, EnvError for a game without two sides."""
    if len(spec.sides) != 2:
        raise EnvError(f"{spec.env_id} has {len(spec.sides)} sides; a best response is one of two")
    named = dict(zip((own.name for own in spec.behaviors), played_behaviors(spec), strict=True))
    members: dict[str, ModelPlayer] = {}
    for guest in find_guests([word], spec):
        own, player = named[guest.behavior], guest.player
        if isinstance(player, Bot):
            return Rival(word, player, frozenset(own.name for own in named.values()), "")
        members[own.name] = OnnxPlayer(Path(word), own) if isinstance(player, PolicyFile) else player
    files = {name: player.sha256 for name, player in members.items() if player.sha256}
    others = {own.name: RandomPlayer(own) for own in named.values() if own.name not in members}
    digest = digest_of(files) if files else ""
    return Rival(word, team_of({**members, **others}, Path(word).stem, digest), frozenset(members), digest)


def response_run(run: RunFile, spec: GameSpec, behavior: str, rival: Rival, budget: Budget) -> RunFile:
    """The run file of a response: a given one, with the rival as the only opponent.

    Whatever else plays in the game never learns: the rival has it.
    """
    run = run.completed(own.name for own in spec.behaviors)
    responding = _name_of(run, behavior)
    behaviors = {}
    for name, own in run.behaviors.items():
        limit = (budget.steps or own.max_steps) if name == responding else 0
        play = own.self_play or SelfPlay()
        save = min(play.save_steps, max(1, limit // CURVE_POINTS))
        play = play.changed(save_steps=save, team_change=save, window=NEWEST)
        lone = {"population": None} if hasattr(own, "population") else {}
        behaviors[name] = own.changed(max_steps=limit, self_play=play, init_path=None, **lone)
    league = LeagueSettings(opponents="members", members=(rival.word,), landmarks=SNAPSHOTS)
    game = arena_games().get(spec.env_id)
    watched = len(spec.behaviors) == 1 and not (game and game.filmed)  # a duel takes a minute, and there are a hundred
    palus = {
        "league": league,
        "max_minutes": budget.minutes,
        "baselines": (rival.word,) if watched else (),
        "baseline_interval": behaviors[responding].summary_freq if watched else 0,
    }
    parameters = {name: _followed(p, responding) for name, p in (run.environment_parameters or {}).items()}
    return run.changed(
        behaviors=behaviors,
        checkpoint_settings={"initialize_from": None, "inference": False},
        environment_parameters=parameters or None,
        palus=palus,
    )


def _followed(parameter: EnvironmentParameter, behavior: str) -> EnvironmentParameter:
    """A curriculum goes by the steps of who learns."""
    if not isinstance(parameter, Curriculum):
        return parameter
    lessons = tuple(
        lesson.changed(completion_criteria={"behavior": behavior}) if lesson.completion_criteria else lesson
        for lesson in parameter.curriculum
    )
    return parameter.changed(curriculum=lessons)


def _behavior_of(rival: Rival, spec: GameSpec, wanted: str | None) -> str:
    """Which behavior the response plays: all of one side, where all of the other is the rival's."""
    can = [
        own.name
        for own in played_behaviors(spec)
        if all(
            _played_on(spec, team) == {own.name} and _played_on(spec, other) <= rival.behaviors
            for team, other in (spec.sides, spec.sides[::-1])
            if own.name in _played_on(spec, team)
        )
    ]
    if wanted in can or (wanted is None and len(can) == 1):
        return wanted or can[0]
    if wanted is None and can:
        raise ModelError(f"{spec.env_id} has several behaviors; say which one probes: --behavior {' or '.join(can)}")
    raise ModelError(
        f"{rival.word}: plays {' and '.join(sorted(rival.behaviors))} of {spec.env_id}, against which "
        f"{f'{wanted} cannot be' if wanted else 'nothing can be'} trained; "
        + (f"probe with --behavior {' or '.join(can)}" if can else "each side has to be played by one behavior")
    )


def _played_on(spec: GameSpec, team: int) -> set[str]:
    """Behaviors of a team, called as by `played_behaviors`."""
    return {agent.behavior or spec.env_id for agent in spec.agents if agent.team == team}


def _name_of(run: RunFile, behavior: str) -> str:
    """What the run file calls it: anything where the game's only one has no name."""
    return behavior if behavior in run.behaviors else next(iter(run.behaviors))


def _freeze(model: str, root: Path, *, keep: bool) -> str:
    """Copy what is probed into the run's folder, so that it stays as it is; returns the word for it from then on.

    keep: it was copied before, and has to be the same. Raises CheckpointError when it is another.
    """
    path = Path(model)
    if not path.exists():
        return model  # a player of the house
    copy = root / _FROZEN / path.resolve().name
    for name, data in _files(path):
        place = copy / name if name else copy
        if not keep:
            write_bytes(place, data)
        elif not place.is_file() or place.read_bytes() != data:
            raise CheckpointError(
                f"{model}: is another than the one that {root} probed until now; leave out --resume to probe it anew, "
                "with --run-id or --force"
            )
    return str(copy)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """A file as it is, of a folder its models, by name."""
    if path.is_dir():
        yield from ((model.name, model.read_bytes()) for model in sorted(path.glob("*.onnx")))
    else:
        yield "", path.read_bytes()


def _of_curve(pairs: int) -> int:
    """Pairs of each point of the curve, where `pairs` are played in the end."""
    return max(1, pairs // 4)


def _point(steps: int, summary: PairingSummary) -> ProbePoint:
    if not summary.pairs:
        raise EnvError("no match against the model came to a verdict; let it play once with `palus match`")
    return ProbePoint(steps, summary.score, *summary.interval, summary.pairs)
