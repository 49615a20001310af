"""One sentence per fault: what was found, what was expected, what to do. Translates pydantic's errors.

A fault's path is the user's: `behaviors.SoccerTwos.hyperparameters.batch_sise`, without the tags of pydantic's unions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from palus.config import schema
from palus.config.trainer import HYPERPARAMETERS

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """Something wrong at a key.

    near: the key that an unknown one was probably meant to be. missing: the fault is that the key is not there.
    compared: the values that a rule between keys compares; it is left out when one of them is itself a fault.
    """

    path: KeyPath
    text: str
    near: str | None = None
    missing: bool = False
    compared: tuple[KeyPath, ...] = ()

    def sentence(self, label: str) -> str:
        """The fault as one sentence; label names the file or the override."""
        where = ".".join(map(str, self.path))
        return ": ".join(filter(None, [", ".join(filter(None, [label, where])), self.text]))


def found(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)


def near_name(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None."""
    known = {other.lower(): other for other in names}
    matches = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    return known[matches[0]] if matches else None


def faults_of(error: ValidationError, root: schema.Annotation, prefix: KeyPath = ()) -> list[Fault]:
    """The faults of a tree that was validated against `root`; prefix: where that tree sits in the file."""
    faults = []
    for detail in error.errors(include_url=False):
        if detail["type"] == "default_factory_not_called":
            continue  # an echo of the fault in the value it derives from
        if detail["type"] == "too_short" and detail["input"]:
            continue  # an echo of the faults of its items
        keys = list(schema.resolve(root, detail["loc"]))
        path = prefix + tuple(key for key, _ in keys)
        if detail["type"] == "extra_forbidden":
            faults.append(_unknown_key(path, [section for _, section in keys]))
        else:
            faults.append(Fault(path, _text(detail), missing=detail["type"] == "missing"))
    return faults


def _unknown_key(path: KeyPath, sections: list[schema.Annotation]) -> Fault:
    """sections: those around the key, from the outermost to its own, which are the last ones of its path."""
    *outer, section = sections
    name, known = str(path[-1]), schema.keys(section)
    trainer = next((other for other, model in HYPERPARAMETERS.items() if model is section), None)
    owners = [other for other, model in HYPERPARAMETERS.items() if trainer and name in model.model_fields]
    if owners:
        *more, last = owners
        have = f"{', '.join(more)} and {last} have" if more else f"{last} has"
        return Fault(path, f"unknown key for trainer_type {trainer}; only {have} it")
    for above, around in zip(range(len(path) - 2, -1, -1), reversed(outer), strict=False):
        if name in schema.keys(around):
            where = f"in {'.'.join(map(str, path[:above]))}" if above else "at the top of the file"
            return Fault(path, f"unknown key; it belongs {where}")
    near = near_name(name, known)
    if near:
        return Fault(path, f"unknown key; did you mean {near}?", near)
    for key in known:
        if name in schema.keys(schema.child(section, key)):
            return Fault(path, f"unknown key; it belongs in {key}")
    return Fault(path, f"unknown key; the keys here are {', '.join(known)}")


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a map of keys",
    "model_type": "a map of keys",
    "model_attributes_type": "a map of keys",
    "tuple_type": "a list",
}


_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _not_among(value: object, expected: str) -> str:
    """expected: pydantic's list of the allowed words, `'a', 'b' or 'c'`."""
    words = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
    words = [word.lower() if word in ("True", "False") else word for word in words]
    near = near_name(str(value), words)
    hint = f"; did you mean {near}?" if near else ""
    return f"expected one of {', '.join(words)}, found {found(value)}{hint}"


def _text(detail: ErrorDetails) -> str:
    """The sentence for one pydantic error other than an unknown key."""
    kind, value = detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx", {})
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {found(value)}"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"expected {words} {context[key]:g}, found {found(value)}"
    if kind == "literal_error":
        return _not_among(value, context["expected"])
    if kind == "union_tag_invalid":
        return _not_among(context["tag"], context["expected_tags"])
    if kind in ("too_short", "too_long"):
        bound = "at least" if kind == "too_short" else "at most"
        size = context["min_length" if kind == "too_short" else "max_length"]
        return f"expected {bound} {size} items, found {context['actual_length']}"
    if kind == "missing":
        return "missing; this key is required"
    return detail["msg"]
