"""How much of a run this machine does in so many minutes, measured before it begins: `palus train --minutes`.

A run that the clock ends early has not come down to the end of its schedules, and that is where a policy becomes good.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from palus.config import RunFile
from palus.config.trainer import AnyBehavior, SacHyperparameters
from palus.learn.ranks import ALONE, Ranks
from palus.run.scratch import Scratch
from palus.train import Run
from palus.trust import NOBODY, Trust

MEASURED_ITERATIONS, MEASURED_S = 3, 20.0
"""So many iterations are timed after one that compiles, fewer where they take longer than that."""
SHARE_OF_RATE = 0.75
"""Of the rate at the start: later more past selves are in play, and test matches and checkpoints take their time."""


def scratch(run: RunFile, folder: str) -> RunFile:
    """The same run in a folder that is thrown away, without test matches; every learner learns from its first step."""
    behaviors = {name: _at_once(behavior) for name, behavior in run.behaviors.items()}
    others = None if run.default_settings is None else _at_once(run.default_settings)
    return run.changed(
        behaviors=behaviors,
        default_settings=others,
        checkpoint_settings={"results_dir": folder, "resume": False, "initialize_from": None},
        palus={"baseline_interval": 0},
    )


@contextmanager
def trial(run: RunFile, trust: Trust, ranks: Ranks = ALONE) -> Iterator[Run]:
    """The run in such a folder, after a first iteration, which compiles and allocates. Raises what a run raises."""
    with (
        closing(Scratch("palus-trial-")) as folder,
        closing(Run(scratch(run, str(folder.path)), trust=trust, log=lambda level, text: None, ranks=ranks)) as parts,
    ):
        parts.iterate()
        yield parts


def timed(parts: Run, ranks: Ranks = ALONE) -> float:
    """Seconds of the next `MEASURED_ITERATIONS`, or of those that fit into `MEASURED_S`. Called by all ranks."""
    begun = time.perf_counter()
    for _ in range(MEASURED_ITERATIONS):
        parts.iterate()
        seconds = time.perf_counter() - begun
        if ranks.first(seconds > MEASURED_S):
            break
    return seconds


def _at_once(behavior: AnyBehavior) -> AnyBehavior:
    """Settings by which a learner does not wait for data."""
    waits = isinstance(behavior.hyperparameters, SacHyperparameters)
    return behavior.changed(hyperparameters={"buffer_init_steps": 0}) if waits else behavior


def fitting_share(steps_per_s: float, minutes: float, wanted: float) -> float:
    """The share, at most 1, of the wanted steps that a machine does in so many minutes; all of none."""
    return min(1.0, SHARE_OF_RATE * steps_per_s * 60.0 * minutes / wanted) if wanted else 1.0


def fitted(run: RunFile, minutes: float, trust: Trust = NOBODY) -> RunFile:
    """The run, to end within `minutes` on this machine: every learner's `max_steps`, and with it its schedules, cut to
    the share that fits; never more than the file says, and none of a learner that is to do none. The clock ends what
    turns out slower than it was measured.

    Plays and learns a little in a folder of its own. Raises what a run raises.
    """
    with trial(run, trust) as parts:
        learn = [trainee.policy for trainee in parts.trainees if trainee.behavior.max_steps]
        before = sum(parts.steps[policy] for policy in learn)
        seconds = timed(parts)
        rate = (sum(parts.steps[policy] for policy in learn) - before) / seconds
        own = {trainee.name: trainee.behavior.max_steps for trainee in parts.trainees}
        wanted = sum(trainee.behavior.max_steps for trainee in parts.trainees)
    share = fitting_share(rate, minutes, wanted)
    complete = run.completed(own)
    behaviors = {
        name: behavior.changed(max_steps=min(behavior.max_steps, max(1, int(share * behavior.max_steps))))
        for name, behavior in complete.behaviors.items()
    }
    return complete.changed(behaviors=behaviors, palus={"max_minutes": minutes})
