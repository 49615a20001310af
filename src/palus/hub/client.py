"""The client side of a hub: `huggingface_hub` with the endpoint named, one commit per push, errors that say what to do.

The library is steered by arguments, never by the environment, so that one process can speak to several hubs. A token
goes only to the hub that it was stored for.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_session, get_token
from huggingface_hub import login as log_in_to_default_hub
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils._auth import _save_token, get_stored_tokens
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import hf_raise_for_status

from palus import __version__
from palus.errors import HubError
from palus.hub.bounded import bound_answers, one_copy
from palus.hub.ids import COMMIT, check_path
from palus.hub.layout import Content
from palus.hub.target import HUGGING_FACE

# Between its versions the library changes the package that speaks HTTP; its errors are reached through this one class.
_TRANSPORT_ERRORS: tuple[type[BaseException], ...] = (HfHubHTTPError.__bases__[0], OSError)

_NO_HUB_ERRORS = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)
"""What the library raises over an answer that is not the protocol's: it takes for granted that a hub gave it."""

_GIT = ".[gG][iI][tT]"
_NEVER = (_GIT, f"*/{_GIT}", f"{_GIT}/*", f"*/{_GIT}/*", "/*", "..", "../*", "*/..", "*/../*")
"""Patterns of paths that `check_path` refuses on the way up, and that nobody wants on the way down."""


def token_for(url: str) -> str | None:
    """The token for this hub: stored by `log_in`, or of `huggingface_hub` itself where it speaks to the same hub."""
    if url != constants.ENDPOINT:
        return get_stored_tokens().get(url)
    return os.environ.get("HF_TOKEN") or get_stored_tokens().get(url) or get_token()


def log_in(url: str, token: str) -> str:
    """Check a token with the hub and store it where `huggingface_hub` keeps its tokens; returns the account's name.

    Raises HubError when the hub does not know the token or cannot be reached; nothing is stored then.
    """
    with _explained(url):
        name = str(_api(url, token).whoami()["name"])
        if url == constants.ENDPOINT:
            log_in_to_default_hub(token, add_to_git_credential=False)
        else:  # the library has no public call for a token of another endpoint; `hf auth list` shows it by this name
            _save_token(token, url)
            Path(constants.HF_STORED_TOKENS_PATH).chmod(0o600)  # versions before 2 leave it to the umask
    return name


def account(url: str) -> str:
    """Whose token is stored for this hub. Raises HubError without a token, or when it is not valid."""
    _need_token(url)
    with _explained(url):
        return str(_api(url).whoami()["name"])


def check_may_push(url: str, repo_id: str) -> str:
    """Whose token is stored for this hub, and whether it may write there as far as the hub tells; returns the name.

    Raises HubError without a valid token, for one that only reads, and for an owner that is neither its account nor
    an organisation of that. What only the hub knows (a token bound to some repositories) it says at the push.
    """
    _need_token(url)
    with _explained(url):
        caller = _api(url).whoami()
        token = caller.get("auth", {}).get("accessToken", {})
        name, role, scopes = str(caller["name"]), token.get("role"), tuple(token.get("scopes", ()))
        owners = [name, *(str(group["name"]) for group in caller.get("orgs", ()))]
    owner = repo_id.partition("/")[0]
    if "admin" in scopes:
        return name
    if role == "read":
        raise HubError(
            f"{url}: the token of {name} may only read; get one that may write, then: palus login{_argument(url)}"
        )
    if owner.lower() not in (known.lower() for known in owners):
        own = f"{name}/{repo_id.partition('/')[2]}"
        raise HubError(f"{repo_id}: you are {name} at {url} and may not push to {owner}; name it {own}")
    return name


def read_card(url: str, repo_id: str) -> str | None:
    """README.md at the repository's head; None when there is no repository or no card yet. Raises HubError."""
    with _explained(url, repo_id):
        bound_answers()
        address = f"{url}/{repo_id}/resolve/main/README.md"
        headers = build_hf_headers(token=token_for(url) or False)
        answer = get_session().get(address, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
        try:
            hf_raise_for_status(answer)
        except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError):
            return None
        return answer.content.decode("utf-8", errors="replace")


def push_to_hub(
    url: str,
    repo_id: str,
    files: Mapping[str, Content],
    is_replaced: Callable[[str], bool],
    *,
    message: str,
    private: bool = False,
) -> tuple[str, bool]:
    """Make `files` the repository's content in one commit. Returns the head's commit and whether it is a new one.

    is_replaced: which paths of the repository go when `files` lacks them; others stay.
    private: make the repository private; a public one is left as it is otherwise.
    Raises HubError with what to do.
    """
    for path in files:
        check_path(path)
    _need_token(url)
    api = _api(url)
    with _explained(url, repo_id), _without_notices():
        api.create_repo(repo_id, private=private or None, exist_ok=True)
        if private:
            api.update_repo_settings(repo_id, private=True)
        info = api.model_info(repo_id)
        present = {file.rfilename for file in info.siblings or ()}
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(path, content)
            for path, content in files.items()
            if not (path == ".gitattributes" and path in present)  # the hub's own fits the hub better
        ]
        gone = sorted(path for path in present if path not in files and is_replaced(path))
        operations += [CommitOperationDelete(path, is_folder=False) for path in gone]
        commit = api.create_commit(repo_id, operations, commit_message=message, parent_commit=info.sha)
    return commit.oid, commit.oid != info.sha


def pull_from_hub(url: str, repo_id: str, folder: Path, revision: str | None = None) -> None:
    """Copy a repository's files at `revision` (head when None) into `folder`. Raises HubError.

    Paths that lead out of the folder, and what git would obey in it, stay away: a hub may list anything. The library
    names a file by the commit: it is asked for here first, for what the hub calls so may be a path.
    """
    with _explained(url, repo_id), one_copy():
        api = _api(url)
        commit = api.model_info(repo_id, revision=revision).sha
        if not COMMIT.fullmatch(str(commit)):
            raise HubError(f"{repo_id}: {url} calls its commit {commit!r}; expected 40 hex digits, so it is no hub")
        api.snapshot_download(repo_id, revision=commit, local_dir=folder, ignore_patterns=list(_NEVER))
    # The library's notes for continuing a broken download; kept until it succeeded, no part of the repository.
    shutil.rmtree(folder / ".cache" / "huggingface", ignore_errors=True)
    with suppress(OSError):  # not empty: somebody else's files are in it
        (folder / ".cache").rmdir()


def _need_token(url: str) -> None:
    if token_for(url) is None:
        raise HubError(f"{url}: no token is stored for this hub; get one from it, then: palus login{_argument(url)}")


def _api(url: str, token: str | None = None) -> HfApi:
    bound_answers()
    # False, not None: None would send the token of huggingface.co to whatever hub this is.
    return HfApi(url, token or token_for(url) or False, library_name="palus", library_version=__version__)


@contextmanager
def _explained(url: str, repo_id: str = "") -> Iterator[None]:
    """Turns what the library raises into HubError: what happened, what was expected, what to do."""
    what = repo_id or url
    try:
        yield
    except HFValidationError as error:
        raise HubError(f"{what}: {error}") from error
    except RevisionNotFoundError as error:
        raise HubError(f"{repo_id}: {url} has no such revision; leave out --revision for the newest") from error
    except HfHubHTTPError as error:
        if isinstance(error, LocalEntryNotFoundError):  # "not in the cache either": the hub did not answer
            raise HubError(_unreachable(error, url)) from error
        raise HubError(_http_message(error, url, repo_id)) from error
    except _TRANSPORT_ERRORS as error:
        raise HubError(_unreachable(error, url)) from error
    except _NO_HUB_ERRORS as error:
        sentence = "what answers there is no hub, or a page of the network in between; check the address"
        raise HubError(f"{url}: {sentence} ({type(error).__name__}: {str(error)[:200]})") from error


def _http_message(error: HfHubHTTPError, url: str, repo_id: str) -> str:
    status = error.response.status_code if error.response is not None else None
    said = error.server_message or str(error).splitlines()[0]
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return f"{url}: the token is not valid ({said}); get a new one from the hub, then: palus login{_argument(url)}"
    if isinstance(error, RepositoryNotFoundError):
        token = "" if token_for(url) else f", or it is private and needs: palus login{_argument(url)}"
        return f"{repo_id}: {url} has no such repository{token}; check the spelling of owner/name"
    if status == 403:
        return f"{repo_id or url}: not allowed ({said}); push to an account of yours with a token that may write"
    if status == 412:
        return f"{repo_id}: somebody else pushed at the same moment; push again"
    proxy = f"; {_proxy_hint(url)}" if _proxy_hint(url) else ""
    return f"{repo_id or url}: the hub answered {status}: {said}{proxy}"


def _unreachable(error: BaseException, url: str) -> str:
    hint = _proxy_hint(url) or "check the address, and that `palus arena` runs there"
    if url == HUGGING_FACE:
        hint = "check the network, or name another hub with --hub"
    return f"{url}: the hub cannot be reached ({_root_cause(error)}); {hint}"


def _root_cause(error: BaseException) -> str:
    """The innermost reason: libraries wrap "connection refused" several times."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return str(error) or type(error).__name__


def _proxy_hint(url: str) -> str:
    """What to do when a proxy of the environment stands between us and a hub in the same network; else empty."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in urllib.request.getproxies() or urllib.request.proxy_bypass(host) or not _is_local(host):
        return ""
    return f"the environment sends this local address through a proxy: export NO_PROXY={host}"


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan"))


def _argument(url: str) -> str:
    return "" if url == HUGGING_FACE else f" {url}"


@contextmanager
def _without_notices() -> Iterator[None]:
    """Without the library's log lines about what we report ourselves (an unchanged push)."""
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
