"""Options of palus's own games, which may come from anywhere: checked against the annotations of the game's factory."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError, validate_call

from palus.errors import EnvError


def make_with(factory: Callable[..., Any], env_id: str, given: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What the factory, a function or a class, makes of `given` and of options, which are its keywords.

    Raises EnvError with every option that the factory does not have or that is of another kind than annotated.
    """
    try:
        if not isinstance(factory, type):
            return validate_call(factory)(*given, **options)
        made: Any = object.__new__(factory)
        validate_call(vars(factory)["__init__"])(made, *given, **options)
        return made
    except ValidationError as error:
        parameters = inspect.signature(factory).parameters.values()
        known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        faults = "; ".join(_fault(detail, known) for detail in error.errors())
        raise EnvError(f"game {env_id} refuses its options: {faults}") from error


def _fault(detail: Mapping[str, Any], known: list[str]) -> str:
    name = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "unexpected_keyword_argument":
        return f"{name}: {detail['msg']}, found {detail['input']!r}"
    near = difflib.get_close_matches(name, known, n=1)
    there = f"there are {', '.join(known)}" if known else "there are none"
    return f"{name}: no such option; " + (f"did you mean {near[0]}?" if near else there)
