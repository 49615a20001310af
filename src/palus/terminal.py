"""What stands on a terminal: text, and the styles that palus gives it. Names in files, in games and on other machines
may hold control characters, which would set the title of a window, clear the screen or rewrite lines. Leaf module."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.segment import Segment

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All of C0 and C1 but for tabs and ends of lines."""


def printable(text: str) -> str:
    """The text without control characters, for `print`."""
    return _CONTROLS.sub("", text)


def bear_any_text() -> None:
    """Write a `?` for each character that the encoding of stdout or stderr lacks, where Python would raise.

    For the start of a command: names may hold any character, tables hold a `±`, and a terminal may know ASCII alone.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class Terminal(Console):
    """A console of rich's on which only rich itself controls anything."""

    def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
        """As `Console.render`, of which everything is made that is printed."""
        for segment in super().render(*args, **options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
