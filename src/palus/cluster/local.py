"""A league on one machine: each run in a process of its own, and one console."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from palus.cluster.keeping import POLL_S, Keeper, Tail
from palus.cluster.plan import LeaguePlan
from palus.files import make_folder
from palus.launch.apart import Ending
from palus.trust import Trust


def play_league(
    plan: LeaguePlan, trust: Trust, stopped: Callable[[], bool], tell: Callable[[str, str], None]
) -> dict[str, Ending]:
    """Train all runs of a plan to their ends. stopped: let them save and end. tell: takes the name of a run and a line.

    A second Ctrl-C ends them at once, and is passed on. Raises StorageError where there is no place for their folders,
    or none to write on the storage.
    """
    for name in plan.runs:
        make_folder(plan.folder(name), "--results-dir")
    plan.check_storage()
    tails = {name: Tail(plan.log(name)) for name in plan.runs}
    keepers = {name: Keeper(plan, name, trust, lambda line: tell("league", line)) for name in plan.runs}

    def show() -> None:
        for name, tail in tails.items():
            for line in tail.lines():
                tell(name, line)

    with ThreadPoolExecutor(len(keepers)) as pool:
        waiting = {name: pool.submit(keeper.keep) for name, keeper in keepers.items()}
        try:
            while not all(ending.done() for ending in waiting.values()):
                if stopped():
                    for keeper in keepers.values():
                        keeper.stop.set()
                show()
                time.sleep(POLL_S)
        except BaseException:
            for keeper in keepers.values():
                keeper.stop.set()
                keeper.abort.set()
            raise
        show()
        return {name: ending.result() for name, ending in waiting.items()}
