"""Names and paths that strangers send by raw HTTP."""

from __future__ import annotations

import pytest

from palus.hub.ids import check_path, check_repo_id
from palus.hub.refusals import InvalidInputError


@pytest.mark.parametrize("repo", ["ada/SoccerTwos-1", "A_1/x.y", "a/b"])
def test_ordinary_ids_pass(repo: str) -> None:
    assert check_repo_id(*repo.split("/")) == repo


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *(("ada", name) for name in ("", ".", "..", "-a", "a-", ".a", "a.", "a--b", "a..b", "a.git", "A.GIT")),
        *(("ada", name) for name in ("a b", "a/b", "a\\b", "é", "a\n", "a\0", "NUL", "con.txt", "lpt1", "x" * 93)),
        *((owner, "x") for owner in ("api", "Datasets", "spaces", "match", "room", "assets", "palus", "aux")),
    ],
)
def test_ids_that_break_a_rule_are_refused(owner: str, name: str) -> None:
    with pytest.raises(InvalidInputError):
        check_repo_id(owner, name)


@pytest.mark.parametrize("path", ["README.md", "a/b/c.onnx", ".gitattributes", "näme.txt", "a b", "x" * 255, "a..b/c"])
def test_ordinary_paths_pass(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "..", ".", "./x", "", "a//b", "a/", "/etc/passwd", "a/.", "a\\..\\b", "C:/x", "c:x"),
        *("a\0b", "a\nb", "a\x85b", "\ud800", "x" * 256, "a/" * 40 + "b", "é" * 600, ".git/config", "a/.GIT/hooks"),
    ],
)
def test_paths_that_break_a_rule_are_refused(path: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        check_path(path)
    assert str(refusal.value).isascii(), "the message travels in a header"
