"""Walks the models of a run file as one tree: which keys a section has, and where a pydantic error sits in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag

Annotation = Any
"""A type as written in a model: a model, a union of tagged models, `dict[str, X]`, `tuple[X, ...]`, or a plain type."""


def branches(annotation: Annotation) -> list[tuple[str, Annotation]]:
    """The alternatives of a type with their tags, null left out; most types are their own single branch, tagged ''."""
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        tags = [entry.tag for entry in metadata if isinstance(entry, Tag)]
        return [(tags[0], inner)] if tags else branches(inner)
    if origin in (Union, UnionType):
        return [branch for member in get_args(annotation) for branch in branches(member)]
    return [] if annotation is NoneType else [(_model_tag(annotation), annotation)]


def _model_tag(annotation: Annotation) -> str:
    """The value of a model's discriminator, which is its first field; '' without one."""
    model = as_model(annotation)
    first = next(iter(model.model_fields.values())).annotation if model and model.model_fields else None
    return str(get_args(first)[0]) if get_origin(first) is Literal else ""


def as_model(annotation: Annotation) -> type[BaseModel] | None:
    """The annotation when it is a model."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def keys(annotation: Annotation) -> list[str]:
    """The keys of a section, those of all its alternatives together; [] for what is no section."""
    models = [as_model(branch) for _, branch in branches(annotation)]
    return list(dict.fromkeys(name for model in models if model for name in model.model_fields))


def child(annotation: Annotation, key: str | int) -> Annotation:
    """The type at a key of a section, of a map or of a list; None where the schema has nothing."""
    for _, branch in branches(annotation):
        if (model := as_model(branch)) and key in model.model_fields:
            return model.model_fields[str(key)].annotation
        origin: Any = get_origin(branch)
        if origin in (dict, tuple):
            return get_args(branch)[1 if origin is dict else 0]
    return None


def resolve(root: Annotation, location: Sequence[str | int]) -> Iterator[tuple[str | int, Annotation]]:
    """The keys of a pydantic error location, union tags left out, each with the type of the section that holds it."""
    here = root
    for part in location:
        options = dict(branches(here))
        if len(options) > 1 and part in options:
            here = options[str(part)]
        else:
            yield part, here
            here = child(here, part)
