"""Whose code may run here: the one place that imports what a text names, `module:attribute`.

Texts come from files, sockets and tables that others wrote. So nothing is imported unless its module is named by a
`Trust`, which only the command line (`--trust MODULE`) and code hand out; palus's own games and networks are looked up
in tables by their names and need none. A program that a run file would start, its game in Unity, is named alike.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from palus.errors import TrustError

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PROGRAM = "env_settings.env_path"
_PATH = re.compile(rf"({_MODULE.pattern}):[\w.]+")


@dataclass(frozen=True)
class Trust:
    """Modules whose code somebody allowed to run, and programs. Trusting a package trusts what is in it."""

    modules: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()

    @staticmethod
    def of(names: Iterable[str], words: Iterable[str] = (), programs: Iterable[str] = ()) -> Trust:
        """Trust in the modules of these names, and in those that `key=module:attribute` names among the words that
        were typed; in these programs, and in those that `env_settings.env_path=PATH` names there. Raises TrustError for
        a name that no module has."""
        named = list(names)
        wrong = [name for name in named if not _MODULE.fullmatch(name)]
        if wrong:
            raise TrustError(f"--trust {wrong[0]}: not the name of a module; write it as in `import my_package.games`")
        typed = [(key, value.strip("'\" ")) for key, _, value in (word.partition("=") for word in words)]
        modules = (match[1] for _, value in typed if (match := _PATH.fullmatch(value)))
        paths = (value for key, value in typed if key == PROGRAM)
        return Trust(frozenset([*named, *modules]), frozenset([*programs, *paths]))

    def allows(self, module: str) -> bool:
        """Whether the module, or a package that holds it, is named."""
        return any(module == name or module.startswith(f"{name}.") for name in self.modules)

    def check(self, module: str, what: str) -> None:
        """Raise TrustError unless the module may run. what: key and value that would run it."""
        if not self.allows(module):
            remedy = f"add --trust {module}" if _MODULE.fullmatch(module) else "there is no module of that name"
            raise TrustError(
                f"{what}: would run code of the module {module}, which is no part of palus; nothing was imported. If "
                f"you know that code and trust it with these settings: {remedy}"
            )

    def check_program(self, path: str) -> None:
        """Raise TrustError unless a run file may start this program."""
        if path not in self.programs:
            raise TrustError(
                f"{PROGRAM}: would start the program {path}; nothing was started. If you know that program, name it on "
                f"the command line: {PROGRAM}={shlex.quote(path)}"
            )

    @property
    def option(self) -> str:
        """The same trust as words of a command line, with a blank before each; "" for none."""
        words = [*(f"--trust {name}" for name in sorted(self.modules))]
        return "".join(f" {word}" for word in [*words, *(f"--env {shlex.quote(path)}" for path in self.programs)])


NOBODY = Trust()
"""The default everywhere: names of palus's own tables only."""


def load(path: str, trust: Trust, what: str) -> Any:
    """What `module:attribute` names.

    The module that defines it has to be trusted too: a trusted module imports others, and those are not meant.
    Raises TrustError, and ImportError or AttributeError when there is nothing of that name.
    """
    module, _, attribute = path.partition(":")
    trust.check(module, what)
    found = getattr(importlib.import_module(module), attribute)
    trust.check(str(getattr(found, "__module__", None) or module), what)
    return found
