"""What a hub answers instead of what was asked for, with the status and the code that clients act on."""

from __future__ import annotations

from palus.errors import HubError


class RefusedRequestError(HubError):
    """A request that is not served; what several places refuse has a class of its own.

    status: of HTTP. code: the X-Error-Code by which clients tell 404s apart. retry_after_s: when it may be served.
    """

    status: int = 400
    code: str | None = None

    def __init__(
        self, sentence: str, *, status: int | None = None, code: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.code, self.retry_after_s = status or self.status, code or self.code, retry_after_s


class InvalidInputError(RefusedRequestError):
    """A name, path, hash or body breaks a rule."""


class NotSignedInError(RefusedRequestError):
    """No token where one is needed, or one that is not valid."""

    status = 401


class ForbiddenError(RefusedRequestError):
    """The token is valid and does not allow this."""

    status = 403


class RepoNotFoundError(RefusedRequestError):
    """There is none, or it is private and not the caller's: nobody learns which."""

    status, code = 404, "RepoNotFound"


class RevisionNotFoundError(RefusedRequestError):
    """The repository has no such commit."""

    status, code = 404, "RevisionNotFound"


class EntryNotFoundError(RefusedRequestError):
    """The commit has no such file."""

    status, code = 404, "EntryNotFound"


class AlreadyExistsError(RefusedRequestError):
    """The name is taken."""

    status = 409


class TooLargeError(RefusedRequestError):
    """A file, a commit, a repository or a quota is full."""

    status = 413


INVALID_TOKEN = "Invalid credentials in Authorization header"
"""Clients read any other message of a 401 as "repository not found"."""
