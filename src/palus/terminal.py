"""What stands on a terminal: text, and the styles that palus gives it. Names in files, in games and on other machines
may hold control characters, which would set the title of a window, clear the screen or rewrite lines. Leaf module."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All of C0 and C1 but for tabs and ends of lines."""
USUAL_WIDTH = 80
"""Where nobody says how wide a terminal is."""


def printable(text: str) -> str:
    """The text without control characters, for `print`."""
    return _CONTROLS.sub("", text)


class _PrintableLine(logging.Formatter):
    """What is logged: sentences of another machine stand in it, too."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def bear_any_text() -> None:
    """Write a `?` for each character that the encoding of stdout or stderr lacks, where Python would raise, and no
    controls of what is logged.

    For the start of a command: names may hold any character, tables hold a `±`, and a terminal may know ASCII alone.
    """
    if logging.lastResort is not None:  # which writes to stderr where nobody set up anything else
        logging.lastResort.setFormatter(_PrintableLine())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class Terminal(Console):
    """A console of rich's on which only rich itself controls anything, and whose end is nobody's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)  # of rich's own, `host:100:` would end in a picture
        if self.width < 1:  # COLUMNS=0: tables would have no columns at all
            self.width = USUAL_WIDTH

    def __exit__(self, *error: Any) -> None:
        """Write what was printed. What is told on stderr ends no work: not where the terminal has closed, the signal
        that says so may come later, nor where the disk of a log is full."""
        try:
            super().__exit__(*error)
        except OSError as fault:
            if fault.errno == errno.EIO:
                _let_go()
            elif not self.stderr:
                raise
            del self._buffer[:]

    def table(self, table: Table) -> None:
        """Print a table in which no word is cut: where the terminal is too narrow for that, it wraps its lines."""
        for column in table.columns:
            sizes = [Measurement.get(self, self.options, cell) for cell in (column.header, *column.cells)]
            column.min_width = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
        self.print(table, soft_wrap=False, crop=False)

    def on_broken_pipe(self) -> None:
        """Who reads stdout no more wants no more. What stderr went to may have ended by the very Ctrl-C by which a run
        saves, as `tee` does."""
        if not self.stderr:
            super().on_broken_pipe()
        _into_nothing(2)
        del self._buffer[:]

    def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
        """As `Console.render`, of which everything is made that is printed."""
        for segment in super().render(*args, **options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def _let_go() -> None:
    """Where a terminal has closed, write into nothing from now on."""
    for number in (0, 1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                _into_nothing(number)


def _into_nothing(number: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, number)
    os.close(nothing)
