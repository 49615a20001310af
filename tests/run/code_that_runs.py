"""A module that must not be imported because a file or a message says so: it leaves a mark when it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

MODULE = "code_of_a_stranger"


class Stranger:
    """The module on the path, and whether anything of it ran."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mark = folder / "it-ran"
        source = f"open({str(self._mark)!r}, 'w').close()\ndef make(*arguments, **options): raise TypeError\n"
        (folder / f"{MODULE}.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, MODULE, raising=False)

    @property
    def ran(self) -> bool:
        return self._mark.exists()
