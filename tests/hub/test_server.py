"""The hub by raw HTTP: what no honest client sends, and the answers that clients and browsers rely on."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hub_server import RunningHub, running_hub

LIMITS = {
    "file_bytes": 3000,
    "commit_bytes": 5000,
    "repo_bytes": 20_000,
    "repo_files": 5,
    "bad_tokens_per_minute": 1000,
}


@dataclass
class Client:
    """Somebody with a token, or without one."""

    http: httpx.Client
    token: str | None
    repo: str = "ada/one"

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **request.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **request)

    def create(self, **extra: Any) -> httpx.Response:
        owner, name = self.repo.split("/")
        return self.send("POST", "/api/repos/create", json={"name": name, "organization": owner, **extra})

    def commit(self, *lines: dict[str, Any], **header: Any) -> httpx.Response:
        body = b"".join(
            json.dumps(x).encode() + b"\n" for x in [{"key": "header", "value": {"summary": "t", **header}}, *lines]
        )
        return self.send("POST", f"/api/models/{self.repo}/commit/main", content=body)

    def put(self, path: str, data: bytes = b"x") -> httpx.Response:
        return self.commit(file_line(path, data))

    def get(self, path: str, revision: str = "main", **request: Any) -> httpx.Response:
        return self.send("GET", f"/{self.repo}/resolve/{revision}/{path}", **request)

    def head(self) -> str:
        return str(self.send("GET", f"/api/models/{self.repo}").json()["sha"])


def file_line(path: str, data: bytes) -> dict[str, Any]:
    value = {"content": base64.b64encode(data).decode(), "path": path, "encoding": "base64"}
    return {"key": "file", "value": value}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), json.dumps(LIMITS)) as running:
        yield running


@pytest.fixture(scope="module")
def http(hub: RunningHub) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hub.url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def anybody(http: httpx.Client) -> Client:
    return Client(http, None)


@pytest.fixture
def grace(hub: RunningHub, http: httpx.Client) -> Client:
    return Client(http, hub.token("grace"))


@pytest.fixture
def ada(hub: RunningHub, http: httpx.Client) -> Iterator[Client]:
    """Ada with a repository of one file."""
    client = Client(http, hub.token("ada"))
    assert client.create().status_code == 200
    assert client.put("README.md", b"---\ntags: [a]\n---\n").status_code == 200
    yield client
    client.send("DELETE", "/api/repos/delete", json={"name": "one", "organization": "ada"})


@pytest.mark.parametrize(
    "path", ["../../../../etc/cron.d/x", "a/../../b", "/etc/passwd", "..\\b", "a\0b", "C:/b", "\ud800"]
)
def test_a_path_that_leads_out_of_the_repository_is_refused_with_its_own_message(ada: Client, path: str) -> None:
    head = ada.head()
    for line in (file_line(path, b"x"), {"key": "lfsFile", "value": {"path": path, "oid": "a" * 64}}):
        answer = ada.commit(file_line("good.txt", b"1"), line)
        assert answer.status_code == 400
        assert "path" in answer.headers["X-Error-Message"] and answer.json()["error"].startswith("path ")
    assert ada.head() == head, "nothing of a refused commit stays"
    assert ada.put("good.txt").status_code == 200, "and the next one is served"


@pytest.mark.parametrize("path", ["..%2f..%2fpalus.db", "../../palus.db", "%2e%2e/%2e%2e/palus.db", "a%00b", "%ff"])
def test_no_address_reads_a_file_of_the_server(ada: Client, path: str) -> None:
    assert ada.get(path).status_code == 404


@pytest.mark.parametrize("name", ["a%0d%0aSet-Cookie:%20x", "%0b", "n%C3%A4me", "x" * 5000])
def test_a_strange_name_in_an_address_is_answered_without_breaking_the_headers(ada: Client, name: str) -> None:
    answer = ada.send("GET", f"/api/models/ada/{name}")
    assert (answer.status_code, answer.headers["X-Error-Code"]) == (404, "RepoNotFound")
    assert "Set-Cookie" not in answer.headers and len(answer.headers["X-Error-Message"]) <= 1000


def test_an_alias_bomb_is_refused_before_the_push_and_harmless_after_it(ada: Client) -> None:
    bomb = "---\na: &a [x]\ntags: [*a, *a]\n---\n"
    checked = ada.send("POST", "/api/validate-yaml", json={"content": bomb, "repoType": "model"})
    assert checked.status_code == 400
    assert "anchor or alias" in checked.json()["errors"][0]["message"]
    assert ada.put("README.md", bomb.encode()).status_code == 200
    assert ada.send("GET", "/api/models/ada/one").json()["tags"] == []


def test_a_commit_is_all_or_nothing(ada: Client) -> None:
    head = ada.head()
    assert ada.commit(file_line("b", b"1"), {"key": "deletedFile", "value": {"path": "missing"}}).status_code == 400
    assert ada.commit(file_line("b", b"1"), file_line("b/c", b"1")).status_code == 400, "a file that is a folder"
    assert ada.commit(file_line("b", b"1"), parentCommit="0" * 40).status_code == 412
    assert ada.head() == head
    assert ada.commit(file_line("b", b"1"), parentCommit=head[:7]).status_code == 200
    assert ada.get("b", head).headers["X-Error-Code"] == "EntryNotFound", "a commit never changes"
    assert ada.commit(file_line("b", b"1")).json()["commitOid"] == ada.head(), "no change, no commit"


def test_what_is_too_large_is_refused_by_name(ada: Client) -> None:
    def size(bytes_: int) -> httpx.Response:
        return ada.send(
            "POST", "/api/models/ada/one/preupload/main", json={"files": [{"path": "big.pt", "size": bytes_}]},
            headers={"User-Agent": "unknown/None; hf_hub/2.4.0; python/3.11"},
        )  # fmt: skip

    assert size(3000).json()["files"][0]["uploadMode"] == "regular"
    assert size(3001).status_code == 413 and "big.pt" in size(3001).headers["X-Error-Message"]
    assert ada.put("big.pt", bytes(3001)).status_code == 413
    assert ada.commit(file_line("a", bytes(3000)), file_line("b", bytes(3000))).status_code == 413
    many = [file_line(f"f{i}", b"x") for i in range(5)]
    assert "6 files" in ada.commit(*many).headers["X-Error-Message"]
    answers = [ada.put("changing", bytes([i]) * 2990) for i in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [413] * 3, "20 000 bytes with history and lists"
    assert ada.send("POST", "/api/validate-yaml", content=b" " * (5 << 20)).status_code == 413


def test_paths_are_looked_up_as_the_tree_shows_them_and_not_without_end(ada: Client, anybody: Client) -> None:
    assert ada.commit(file_line("a/b/c", b"1"), file_line("a/d", b"2")).status_code == 200
    tree = {found["path"]: found for found in ada.send("GET", "/api/models/ada/one/tree/main?recursive=true").json()}
    assert list(tree) == ["README.md", "a", "a/b", "a/b/c", "a/d"]
    assert len({tree["a"]["oid"], tree["a/b"]["oid"]}) == 2
    address = "/api/models/ada/one/paths-info/main"
    for asked in ({"json": {"paths": ["a/", "a/b/c", "nothing", "a"]}}, {"data": {"paths": ["a", "a/b/c"]}}):
        assert anybody.send("POST", address, **asked).json() == [tree["a"], tree["a/b/c"]]
    for many in ({"json": {"paths": ["x"] * 1001}}, {"data": {"paths": ["x"] * 1002}}):
        refused = anybody.send("POST", address, **many)
        assert refused.status_code == 400 and "at most 1000" in refused.headers["X-Error-Message"]
    assert anybody.send("POST", address.replace("one", "none"), data={"paths": ["x"] * 1002}).status_code == 401


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br, gzip"])
def test_a_compressed_body_is_refused(ada: Client, coding: str) -> None:
    for path in ("/api/repos/create", "/api/models/ada/one/commit/main"):
        assert ada.send("POST", path, content=b"x", headers={"Content-Encoding": coding}).status_code == 415


def test_a_private_repository_looks_like_none(ada: Client, grace: Client, anybody: Client) -> None:
    settings = "/api/models/ada/one/settings"
    assert grace.send("PUT", settings, json={"private": True}).status_code == 403
    assert ada.send("PUT", settings, json={"visibility": "private"}).status_code == 200
    for path in ("/api/models/ada/one", "/ada/one/resolve/main/README.md", "/api/models/ada/one/tree/main"):
        assert ada.send("GET", path).status_code == 200
        hidden, missing = (grace.send("GET", p) for p in (path, path.replace("one", "two")))
        assert (hidden.status_code, hidden.headers["X-Error-Code"]) == (404, "RepoNotFound")
        assert hidden.json()["error"].replace("one", "two") == missing.json()["error"]
        assert (
            anybody.send("GET", path).status_code == anybody.send("GET", path.replace("one", "two")).status_code == 401
        )
    assert [[m["id"] for m in c.send("GET", "/api/models").json()] for c in (ada, grace, anybody)] == [
        ["ada/one"],
        [],
        [],
    ]
    assert grace.send("DELETE", "/api/repos/delete", json={"name": "one", "organization": "ada"}).status_code == 404


def test_a_token_does_what_its_scopes_say(hub: RunningHub, http: httpx.Client, ada: Client) -> None:
    def with_scopes(name: str, *scopes: str) -> Client:
        return Client(http, hub.token(name, *scopes))

    ada.send("PUT", "/api/models/ada/one/settings", json={"private": True})
    reader, runner, admin = with_scopes("ada", "read"), with_scopes("ada", "runner"), with_scopes("root", "admin")
    assert [c.get("README.md").status_code for c in (reader, runner, admin)] == [200, 404, 200]
    assert [c.put("new").status_code for c in (reader, runner, admin)] == [403, 404, 200]
    assert [[m["id"] for m in c.send("GET", "/api/models").json()] for c in (reader, runner, admin)] == [
        ["ada/one"],
        [],
        ["ada/one"],
    ]
    assert reader.send("GET", "/api/whoami-v2").json()["auth"]["accessToken"]["role"] == "read"


def test_a_bad_token_is_called_so(anybody: Client) -> None:
    for header in ("Bearer wrong", "Bearer palus_\x7f", "Basic YTpi"):
        answer = anybody.send("GET", "/api/models", headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.headers["X-Error-Message"] == "Invalid credentials in Authorization header"


def test_parts_of_a_file_are_served(ada: Client) -> None:
    ada.put("r.bin", b"0123456789")
    part = ada.get("r.bin", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    head = ada.send("HEAD", "/ada/one/resolve/main/r.bin")
    assert head.headers["ETag"] == '"ad471007bd7f5983d273b9584e5629230150fd54"', "as git hash-object says"
    assert head.headers["Content-Length"] == "10" and head.headers["X-Repo-Commit"] == ada.head()
    assert ada.get("r.bin", headers={"If-None-Match": head.headers["ETag"]}).status_code == 304
    assert ada.get("r.bin", headers={"Range": "bytes=20-"}).status_code == 416


@pytest.mark.parametrize(
    ("name", "inline"), [("a.html", False), ("a.SVG", False), ("a.xml", False), ("a.js", False), ("a.png", True)]
)
def test_a_file_never_acts_as_a_page_of_this_site(ada: Client, name: str, inline: bool) -> None:
    ada.put(name, b"<script>alert(1)</script>")
    headers = ada.get(name).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("sandbox;")
    assert headers["Content-Disposition"].startswith("inline" if inline else "attachment")
    # A page may draw an SVG as an image, where its scripts are dead; by its own address it is only saved.
    types = {"a.png": "image/png", "a.SVG": "image/svg+xml"}
    assert headers["Content-Type"] == types.get(name, "application/octet-stream")


def test_lists_page_by_link(ada: Client) -> None:
    for number in range(3):
        ada.create(name=f"page{number}")
    seen, address = [], "/api/models?author=ada&limit=1&full=true"
    while address:
        page = ada.send("GET", address)
        seen += [model["id"] for model in page.json()]
        address = str(page.links.get("next", {}).get("url", ""))
    assert seen == ["ada/page2", "ada/page1", "ada/page0", "ada/one"]
    for number in range(3):
        ada.send("DELETE", "/api/repos/delete", json={"name": f"page{number}"})


def test_upload_addresses_are_good_for_one_content_only(ada: Client, grace: Client, anybody: Client) -> None:
    data = b"large" * 1000
    oid = hashlib.sha256(data).hexdigest()
    batch = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": len(data)}]}
    lfs = "/ada/one.git/info/lfs/objects/batch"
    assert [c.send("POST", lfs, json=batch).status_code for c in (anybody, grace)] == [401, 403]
    actions = ada.send("POST", lfs, json=batch).json()["objects"][0]["actions"]
    href = actions["upload"]["href"]
    assert anybody.send("PUT", href, content=data[:-1]).status_code == 400, "too few bytes"
    assert anybody.send("PUT", href, content=data + b"x").status_code == 400, "too many"
    assert anybody.send("PUT", href, content=data[::-1]).status_code == 400, "others"
    assert anybody.send("PUT", href.replace("size=5000", "size=5001"), content=data).status_code == 403
    assert anybody.send("PUT", href.replace("expires=1", "expires=2"), content=data).status_code == 403
    commit = {"key": "lfsFile", "value": {"path": "l.bin", "algo": "sha256", "oid": oid, "size": len(data)}}
    assert ada.commit(commit).status_code == 403, "nothing arrived so far"
    assert anybody.send("PUT", href, content=data).status_code == 200
    assert ada.send("POST", actions["verify"]["href"], json={"oid": oid, "size": len(data)}).status_code == 200
    assert ada.commit(commit).status_code == 200
    assert ada.get("l.bin").content == data
    assert ada.send("HEAD", "/ada/one/resolve/main/l.bin").headers["X-Linked-Etag"] == f'"{oid}"'


def test_the_day_quota_counts_what_came_by_lfs_and_was_never_committed(tmp_path: Path) -> None:
    day = json.dumps({"day_bytes": 25_000})
    with running_hub(tmp_path, day) as hub, httpx.Client(base_url=hub.url, timeout=60) as http:
        ada = Client(http, hub.token("ada"))
        ada.create()
        files = {hashlib.sha256(data).hexdigest(): data for data in (bytes([k]) * 10_000 for k in range(4))}
        addresses: dict[str, str] = {}
        for half in (list(files)[:2], list(files)[2:]):  # each fits, both together do not
            batch = {"operation": "upload", "objects": [{"oid": oid, "size": 10_000} for oid in half]}
            answer = ada.send("POST", "/ada/one.git/info/lfs/objects/batch", json=batch).json()
            addresses |= {o["oid"]: o["actions"]["upload"]["href"] for o in answer["objects"]}
        sent = [http.put(href, content=files[oid]) for oid, href in addresses.items()]
        assert [answer.status_code for answer in sent] == [200, 200, 413, 413]
        assert "4.88 KiB more within a day" in sent[2].text
        assert ada.put("large.bin", bytes(5001)).status_code == 413
        assert ada.put("small.bin", bytes(4900)).status_code == 200


def test_a_hash_alone_opens_no_private_file(ada: Client, grace: Client) -> None:
    ada.send("PUT", "/api/models/ada/one/settings", json={"private": True})
    ada.put("secret.onnx", b"secret weights")
    oid = hashlib.sha256(b"secret weights").hexdigest()
    grace.repo = "grace/copy"
    grace.create()
    stolen = grace.commit({"key": "lfsFile", "value": {"path": "s.onnx", "algo": "sha256", "oid": oid, "size": 14}})
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": 14}]}
    assert stolen.status_code == 403
    assert "actions" in grace.send("POST", "/grace/copy.git/info/lfs/objects/batch", json=batch).json()["objects"][0]


def test_somebody_elses_name_and_reserved_names_are_refused(ada: Client, grace: Client) -> None:
    assert grace.create().status_code == 403
    assert ada.create(name="One").status_code == 409, "names differ ignoring case"
    assert ada.create(name="nul").status_code == 400
    assert ada.create(organization="api").status_code == 400
    assert ada.send("POST", "/api/models/ada/one/commit/other", content=b"").status_code == 400
