"""The JSON of the protocol: bodies that come in (pydantic) and objects that go out (plain dicts)."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from palus.hub.commits import Commit, File
from palus.hub.limits import MIB
from palus.hub.repos import Kind, Repo

PREUPLOAD_FILES = 256
LFS_BATCH = 1000
Name = Annotated[str, Field(max_length=200)]
Size = Annotated[int, Field(ge=0, le=2**50)]
Json = dict[str, Any]


class DeleteRepo(BaseModel):
    """Which repository is meant. Models come without a type, and without an organization when they are the caller's."""

    name: Name
    organization: Name | None = None
    type: Kind | None = None


class Settings(BaseModel):
    """What of a repository may be set. New clients send a visibility, old ones `private`."""

    visibility: Literal["public", "private"] | None = None
    private: bool | None = None

    @property
    def hides(self) -> bool:
        """Whether the repository shall be private."""
        return bool(self.private) if self.visibility is None else self.visibility == "private"


class CreateRepo(DeleteRepo, Settings):
    """A repository to make."""


class CardToCheck(BaseModel):
    """A README.md before it is pushed."""

    content: Annotated[str, Field(max_length=MIB)]


class FileToUpload(BaseModel):
    """What a client says about a file that it is about to send."""

    path: Annotated[str, Field(max_length=4096)]
    size: Size


class Preupload(BaseModel):
    """Files that a client is about to send."""

    files: Annotated[list[FileToUpload], Field(max_length=PREUPLOAD_FILES)]


class LfsObject(BaseModel):
    """Bytes by their SHA-256."""

    oid: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: Size


class LfsBatch(BaseModel):
    """Bytes that a client wants to send by LFS."""

    operation: str
    objects: Annotated[list[LfsObject], Field(max_length=LFS_BATCH)]
    hash_algo: Literal["sha256"] = "sha256"


def iso_time(ms: int) -> str:
    """A stored time as clients parse it: ISO 8601, UTC, milliseconds."""
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show_repo(repo: Repo, sha: str | None = None) -> Json:
    """A repository in lists and on its own."""
    shown = {
        "_id": f"{repo.id:024x}",
        "id": repo.name,
        "author": repo.owner,
        "sha": sha or repo.head,
        "lastModified": iso_time(repo.modified_ms),
        "createdAt": iso_time(repo.created_ms),
        "private": repo.private,
        "gated": False,
        "disabled": False,
        "downloads": repo.downloads,
        "likes": 0,
        "tags": list(repo.tags),
    }
    if repo.kind == "model":
        shown["modelId"] = repo.name
        if repo.library_name:
            shown["library_name"] = repo.library_name
        if isinstance(task := repo.card.get("pipeline_tag"), str):
            shown["pipeline_tag"] = task
    return shown


def show_sibling(file: File, with_blob: bool) -> Json:
    """A file in the description of its repository."""
    if not with_blob:
        return {"rfilename": file.path}
    shown: Json = {"rfilename": file.path, "size": file.size, "blobId": file.git_sha1}
    if file.lfs:
        shown["lfs"] = {"sha256": file.sha256, **_sizes(file)}
    return shown


def show_file(file: File) -> Json:
    """A file in a tree. Never with a Xet hash: clients then download over plain HTTP."""
    shown: Json = {"type": "file", "path": file.path, "size": file.size, "oid": file.git_sha1}
    if file.lfs:
        shown["lfs"] = {"oid": file.sha256, **_sizes(file)}
    return shown


def show_commit(commit: Commit) -> Json:
    """A commit in a history."""
    shown = {"id": commit.id, "title": commit.title, "message": commit.message, "date": iso_time(commit.created_ms)}
    return {**shown, "authors": [{"user": commit.author}]}


def _sizes(file: File) -> Json:
    """Of the file, and of the text that git would keep in its place."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n"
    return {"size": file.size, "pointerSize": len(pointer)}
