"""What a hub answers instead of what was asked for. Each family has the status and the code that clients act on."""

from __future__ import annotations

from typing import ClassVar

from palus.errors import HubError


class RefusedRequestError(HubError):
    """A request that is not served.

    status: of HTTP. code: the X-Error-Code by which clients tell 404s apart. retry_after_s: when it may be served.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str | None] = None
    retry_after_s: int | None = None


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


class StaleParentError(RefusedRequestError):
    """The repository moved on since the sender looked."""

    status = 412


class TooLargeError(RefusedRequestError):
    """A file, a commit, a repository or a quota is full."""

    status = 413


class EncodedBodyError(RefusedRequestError):
    """A request body that would have to be unpacked first."""

    status = 415


class TooManyError(RefusedRequestError):
    """More requests or bytes in a span of time than the hub takes."""

    status = 429


INVALID_TOKEN = "Invalid credentials in Authorization header"
"""Clients read any other message of a 401 as "repository not found"."""
