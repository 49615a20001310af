"""Which two players a compare page is about."""

from __future__ import annotations

from palus.web.api.roster import Player, kind_of, make_player
from palus.web.api.view import View


def players_to_compare(view: View, a: str, b: str) -> tuple[str, Player, Player] | None:
    """The env and the current players of two repositories, in the game that both play most.

    The same repository twice: its last two accepted revisions, the older one first. None when there is no such pair.
    """
    for env in view.envs():
        if a == b:
            revisions = accepted_revisions(view, env, a)
            if len(revisions) >= 2:
                return env, revisions[1], revisions[0]
            continue
        first, second = view.roster.current_of(env, a), view.roster.current_of(env, b)
        if first is not None and second is not None:
            return env, view.roster.player(first), view.roster.player(second)
    return None


def accepted_revisions(view: View, env: str, repo: str) -> list[Player]:
    """Accepted revisions, newest first, one per file. They keep the name of this repository."""
    board = view.roster.ratings.get(env, {})
    found: dict[str, Player] = {}
    for entry in view.roster.entries_of.get(repo, ()):
        if entry.env == env and entry.state == "accepted" and entry.sha256 not in found:
            found[entry.sha256] = make_player(
                entry.sha256, repo, entry.revision, kind_of(entry), board.get(entry.sha256)
            )
    return list(found.values())
