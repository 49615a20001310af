"""A run that is kept alive: when its process dies, another one goes on from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from palus.cluster.plan import LeaguePlan
from palus.errors import StorageError
from palus.files import make_folder
from palus.launch.apart import Ending, Training, training
from palus.league.records import news
from palus.store.depot import Depot
from palus.trust import Trust

POLL_S = 0.2
FRUITLESS = 5
"""A run whose process dies so often between two parts of the book will not get further."""
PAUSE_S = 15.0
"""Before another process is tried, for each that died before the last one since the last part: a storage that is away
comes back."""


class Keeper:
    """Keeps one run of a league. stop: let it save and end; abort: end it at once."""

    def __init__(self, plan: LeaguePlan, name: str, trust: Trust, tell: Callable[[str], None]) -> None:
        self.plan, self.name, self.trust, self.tell = plan, name, trust, tell
        self.stop, self.abort = Event(), Event()
        self.process: Training | None = None

    def keep(self) -> Ending:
        """Train to the end, whatever dies on the way."""
        fruitless, told = 0, 0
        try:
            make_folder(self.plan.folder(self.name), "--results-dir")
        except StorageError as error:
            return Ending(str(error), unsaved=True)
        while True:
            ending = self._train()
            before, told = told, self._told(told)
            fruitless = fruitless + 1 if told == before else 0
            if not ending.crashed or self.stop.is_set() or fruitless >= FRUITLESS:
                return ending
            self.tell(f"{self.name}: {ending.failure}; it goes on from its checkpoint.")
            if self.stop.wait(PAUSE_S * max(0, fruitless - 1)):
                return Ending()

    def _told(self, before: int) -> int:
        """The last part of the book that it has written; the one before where nobody can say."""
        try:
            return news(Depot(self.plan.storage), self.name, before)[0]
        except StorageError:
            return before

    def _train(self) -> Ending:
        run, berth = self.plan.runs[self.name], self.plan.berth(self.name)
        with training(run, self.plan.log(self.name), resume=True, trust=self.trust, berth=berth) as process:
            self.process, asked = process, False
            while not process.wait(POLL_S):
                if self.stop.is_set() and not asked:
                    process.ask()
                    asked = True
                if self.abort.is_set():
                    process.kill()
            ending = process.ending
            return Ending() if asked and ending.crashed else ending


class Tail:
    """Follows what a run prints, from now on."""

    def __init__(self, log: Path) -> None:
        self._log, self._at = log, log.stat().st_size if log.exists() else 0

    def lines(self) -> list[str]:
        """The whole lines since the last call."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:  # not there yet; or not to be opened, of which its run ends and says so
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()
