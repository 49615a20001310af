"""`palus verify`, `palus audit` and `palus recompute`: what the arena says, checked and computed again."""

from __future__ import annotations

import re
import secrets
from typing import Annotated

import typer
from rich.markup import escape

from palus.cli.options import DEFAULT_DATA, DatabaseOption, DataOption
from palus.cli.output import opened, stdout
from palus.errors import ArenaError

EPILOG = """
Examples:

  # play one match again from its seed and action log
  palus verify 3f2a9c01d4e5b678

  # play a random share again, check the hash chain, compare the runners
  palus audit --sample 1%

  # also: whether match 24 still has the hash that pages showed at their foot
  palus audit --head 24:9f3c...

  # strike out all that the workers of lab sent
  palus audit --suspend lab/pc --reason "modified engine"

  # take results from them again
  palus audit --reinstate lab/pc

  # compute every derived table again from the log; stop the arena first
  palus recompute
"""


def verify(
    match: Annotated[str, typer.Argument(help="Id of a match, as on its page.")],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Play a match of the arena again and compare it bit by bit. Exit code 1 when it differs.

    Duels in Doom do not repeat: their record is checked, and that the video is the one recorded.
    """
    from palus.arena.ladder.verification import verify as verify_match

    with opened(data, database) as store:
        found = verify_match(store, match)
    stdout.print(escape(found.sentence))
    if not found.ok:
        raise typer.Exit(1)


def audit(
    sample: Annotated[str, typer.Option(help="Share of all matches to play again, such as 1% or 0.01.")] = "1%",
    suspend: Annotated[str | None, typer.Option(help="A worker: no match of its account counts any more.")] = None,
    reason: Annotated[str, typer.Option(help="Why it is suspended; shown on the status page.")] = "by hand",
    reinstate: Annotated[str | None, typer.Option(help="A suspended worker: its account may work again.")] = None,
    head: Annotated[str, typer.Option(help="A match and its hash as you noted them, such as 24:9f3c...")] = "",
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Check the log: its hash chain, a random sample played again, every runner against the rest."""
    from palus.arena.ladder import audit as auditing
    from palus.arena.ladder.log import check_chain, check_head
    from palus.store.engine import now_ms

    share, known = _share(sample), _head(head)
    with opened(data, database) as store:
        if suspend is not None:
            with store.write() as connection:
                struck = auditing.suspend(connection, suspend, reason, now_ms=now_ms())
            stdout.print(f"{escape(suspend)} is suspended; {struck} matches no longer count.")
            return
        if reinstate is not None:
            with store.write() as connection:
                auditing.reinstate(connection, reinstate)
            stdout.print(f"{escape(reinstate)} may work again; what was struck out stays so.")
            return
        with store.read() as connection:
            count = check_chain(connection, known)
            number, newest = check_head(connection)
        if count == 0:
            raise ArenaError(
                f"{data}: its log holds no match yet, so there is nothing to check; name the arena's folder"
            )
        stdout.print(f"{count} matches: the hash chain is whole. It ends with {number}:{newest}")
        found = auditing.audit(store, share, seed=secrets.randbits(32), now_ms=now_ms())
        suspended = [*found.suspended, *auditing.suspend_outliers(store, now_ms=now_ms())]
    for failure in found.failures:
        stdout.print(f"[red]struck out:[/] {escape(failure.sentence)}")
    for verification in found.unchecked:
        stdout.print(f"[yellow]not checked:[/] {escape(verification.sentence)}")
    for sentence in suspended:
        stdout.print(f"[red]suspended:[/] {escape(sentence)}")
    sound = [verification for verification in found.found if verification.ok]
    filmed = sum(verification.filmed for verification in sound)
    stdout.print(
        f"{len(sound) - filmed} matches were played again by their players, the same to the last bit; of {filmed} "
        f"duels, which do not repeat, the videos are the ones recorded; {len(found.failures)} were struck out, "
        f"{len(found.unchecked)} could not be checked; {len(suspended) or 'no'} runners stand out."
    )
    if found.failures or suspended or not sound:
        raise typer.Exit(1)


def recompute(data: DataOption = DEFAULT_DATA, database: DatabaseOption = None) -> None:
    """Empty every derived table and compute it again from the log, the entries and the replays.

    The arena has to be stopped: what it knows of the log would be out of date.
    """
    from palus.arena.ladder.refresh import Refresher
    from palus.arena.ladder.settings import settings_of

    with opened(data, database) as store:
        Refresher(store, settings_of(store.folder)).recompute()
    stdout.print("Ratings, their history, the view of the field and play statistics are computed again.")


def _share(text: str) -> float:
    """ "1%" or "0.01" -> 0.01."""
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ArenaError(f"--sample {text}: not a share; write 1% or 0.01")
    return share


def _head(text: str) -> tuple[int, str] | None:
    """ "24:9f3c..." -> (24, "9f3c...")."""
    number, _, digest = text.partition(":")
    if not text:
        return None
    if not number.isdecimal() or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ArenaError(
            f"--head {text}: expected the number of a match and its hash of 64 digits, as a page's foot shows"
        )
    return int(number), digest
