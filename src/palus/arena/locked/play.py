"""One mirrored pair between strangers' models, from bytes to results.

The referee, `referee.match`, is in this process; it sees no model, only the probabilities that each side's locked
process answers. Engines stay out of the models' reach. Nothing is left when this process is killed: engines and locked
processes end with it, and videos are made in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Iterator, Sequence

from palus.arena.locked.remote import open_contestants, true_cause
from palus.arena.locked.sandbox import Sandbox, shared_sandbox
from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.models.rules import Limits
from palus.arena.referee.actions import encode_actions, replay_match, state_hash
from palus.arena.referee.games import env_build, layout_of, playable_game
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Film, Recorder
from palus.arena.referee.result import MatchResult
from palus.arena.referee.sampling import pair_seeds
from palus.envs.recording import Recording
from palus.types import AnyArray, GameSpec
from palus.video import VideoEncoder

CHECK_SHARE = 1 / 16
"""Of a rated match's decisions at which a model is checked: some ten times a match, for a sixteenth of its time."""
VIDEO_BYTES = 2 << 20
"""A match's video becomes coarser rather than larger; only players that spin all the time fill it."""


def play_unit(
    unit: Unit, limits: Limits | None = None, *, sandbox: Sandbox | None = None, check_share: float = CHECK_SHARE
) -> UnitReport:
    """Play the legs of a unit, every model in a locked process of its own.

    limits: of each process; by default those of the game.   sandbox: which opens the processes; by default the one of
    this Python process.   check_share: of the decisions at which models are checked, see `RemotePlayer`.
    Models that fail lose by forfeit when the other side is healthy; the pair is void when both fail or we do.
    Where matches repeat, the same unit gives the same results, with or without processes: they equal `play_pairs` with
    one pair. Raises ArenaError for a game or a built-in player that there is not, EnvError when the game is not
    installed here.
    """
    game = playable_game(unit.env)
    limits, sandbox = limits or Limits(cpu_s=game.cpu_s), sandbox or shared_sandbox()
    (seed,) = pair_seeds(unit.seed, 1).tolist()
    opened = open_contestants(
        unit.env, unit.contenders, limits, sandbox, params=unit.params, check_share=check_share, seed=seed
    )
    recorder, videos = Recorder(), [io.BytesIO(), io.BytesIO()]
    with opened as (first, second), contextlib.ExitStack() as stack:
        film = stack.enter_context(_filmed(videos, first.spec, game.length_s(unit.params))) if game.filmed else None
        results = play_pairs(
            first.player,
            second.player,
            1,
            unit.seed,
            mode=unit.sampling,
            env_id=unit.env,
            env_options=unit.params,
            legs=unit.legs,
            recorder=film or recorder,
        )
    legs = []
    for number, result in enumerate(results):
        verdict, cause = true_cause(result, (first, second) if result.leg == 1 else (second, first))
        result = dataclasses.replace(result, result=verdict, cause=cause)
        if game.filmed:
            legs.append(MatchReport(result, videos[number].getvalue(), b""))
        else:
            legs.append(_recorded(result, recorder.recordings.get(number)))
    build = dataclasses.replace(env_build(unit.env), params=dict(unit.params))
    isolation = first.isolation or second.isolation or "none"
    return UnitReport(tuple(legs), build, isolation, (first.failure, second.failure))


@contextlib.contextmanager
def _filmed(files: Sequence[io.BytesIO], spec: GameSpec, length_s: float) -> Iterator[Film]:
    """A video of each match in its file, which stays empty where nothing was decided."""
    with contextlib.ExitStack() as stack:
        encoders: dict[int, VideoEncoder] = {}

        def write(number: int, picture: AnyArray) -> None:
            if number not in encoders:
                size = int(VIDEO_BYTES / length_s)
                encoder = VideoEncoder(files[number], spec.fps / spec.frameskip, max_bytes_per_s=size)
                encoders[number] = stack.enter_context(contextlib.closing(encoder))
            encoders[number].write(picture)

        yield Film(write)


def _recorded(result: MatchResult, recording: Recording | None) -> MatchReport:
    """A match that can be played again. recording: None when nothing was decided."""
    if recording is None:
        state = replay_match(result.env, result.seed, b"").state
        return MatchReport(dataclasses.replace(result, final_state=state), b"", b"")
    result = dataclasses.replace(result, final_state=state_hash(recording.frames))
    return MatchReport(result, b"", encode_actions(recording.actions, layout_of(result.env)))
