"""`--trust MODULE`: the word with which a person lets files name code of other modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from palus.config import RunFile
from palus.envs import check_game_trust
from palus.errors import TrustError
from palus.trust import Trust

TrustOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="A module outside palus whose games and encoders the run's files may name; its code runs. Repeatable.",
        metavar="MODULE",
    ),
]


@contextmanager
def told_where(place: str | Path) -> Iterator[None]:
    """Say in a refusal which file or folder it is about."""
    try:
        yield
    except TrustError as error:
        raise TrustError(f"{place}: {error}") from error


def check_trust(run: RunFile, trust: Trust) -> None:
    """Raises TrustError when the run file names code outside palus that is not trusted; nothing is imported."""
    if run.env_id is not None and ":" in run.env_id:
        check_game_trust(run.env_id, run.palus.env_options, trust)
    for name, behavior in run.behaviors.items():
        encoder = behavior.network_settings.vis_encode_type
        if ":" in encoder:
            trust.check(encoder.partition(":")[0], f"behaviors.{name}.network_settings.vis_encode_type {encoder}")
