"""What a hub tells of many repositories or files: in pages, in turns, off the event loop; and counts of downloads."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from asking import PATIENCE_S, arena, ask, say
from huggingface_hub import HfApi
from processes import eventually
from sqlalchemy import exc, insert, update

from crowded import Crowded
from palus.hub import repos
from palus.hub.accounts import create_account
from palus.hub.commits import File, Message, write_commit
from palus.hub.limits import HubLimits
from palus.hub.repos import create_repo
from palus.hub.server import context, download_counts, listing
from palus.store import Store, tables
from palus.store.tables import blobs


def test_many_tags_of_a_listing_are_refused_with_a_sentence(store: Store) -> None:
    with arena(store) as address:
        tags = [f"t{number}" for number in range(21)]
        assert ask(address, f"/api/models?filter={','.join(tags[:20])}&filter=t1,t1").json() == []
        refused = ask(address, f"/api/models?filter={','.join(tags[:20])}&filter=t20")
        assert (refused.status_code, refused.json()["error"][:19]) == (400, "filter has 21 tags;")


def test_lists_of_repositories_are_metered_on_their_own_and_made_a_few_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Crowded(repos.list_repos, 0.05)
    monkeypatch.setattr(repos, "list_repos", watched)
    monkeypatch.setattr(context, "client_of", lambda scope: str(scope["client"]))  # each from an address of its own
    limits = HubLimits(listings_per_s=0.001, listing_burst=10)
    with arena(store, hub_limits=limits) as address, ThreadPoolExecutor(12) as crowd:
        answers = [crowd.submit(ask, address, f"/api/{kind}?full=true") for kind in ("models", "datasets") * 6]
        assert sorted(answer.result().status_code for answer in answers) == [200] * 10 + [429] * 2
        assert ask(address, "/api/models/ada/one").status_code == 401, "one repository is no list"
    assert watched.most == 2


def test_a_list_of_repositories_with_large_cards_has_short_pages(store: Store) -> None:
    card = json.dumps({"pipeline_tag": "reinforcement-learning", "text": "x" * 900_000})
    with store.write() as connection:
        account = create_account(connection, "ada")
        for number in range(5):
            create_repo(connection, "model", account, f"m{number}", False, HubLimits())
        connection.execute(update(tables.repos).values(card=card))
    path, pages = "/api/models", list[list[str]]()
    with arena(store) as address:
        while path:
            answer = ask(address, path)
            assert {model["pipeline_tag"] for model in answer.json()} == {"reinforcement-learning"}
            pages.append([model["id"] for model in answer.json()])
            path = answer.links.get("next", {}).get("url", "").partition(":/")[2].partition("/api")[2]
            path = path and f"/api{path}"
    assert pages == [["ada/m4", "ada/m3", "ada/m2"], ["ada/m1", "ada/m0"]]


def test_paths_are_read_off_the_event_loop_and_only_for_who_may_ask(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, on_loop = listing.parse_qsl, list[bool]()

    def watched(*what: Any, **more: Any) -> Any:
        on_loop.append(asyncio._get_running_loop() is not None)
        return read(*what, **more)

    monkeypatch.setattr(listing, "parse_qsl", watched)
    with store.write() as connection:
        create_repo(connection, "model", create_account(connection, "ada"), "one", False, HubLimits())
    with arena(store) as address:
        form = {"method": "POST", "data": {"paths": ["a"]}}
        assert ask(address, "/api/models/ada/none/paths-info/main", **form).status_code == 401
        assert not on_loop
        assert ask(address, "/api/models/ada/one/paths-info/main", **form).json() == []
    assert on_loop == [False]


def test_a_list_of_repositories_ends_a_page_where_it_is_full_and_goes_on_with_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = store.blobs.put(b"x")
    with store.write() as connection:
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
        connection.execute(insert(blobs).values(**row, created_ms=1, pinned=True))
        account = create_account(connection, "ada")
        for number in range(4):
            made = create_repo(connection, "model", account, f"m{number}", False, HubLimits())
            files = [File(f"{'a' * 100}{file}", blob.sha256, 1, False, blob.git_sha1) for file in range(50)]
            write_commit(connection, made.id, made.name, made.head, Message("m"), "ada", files)
    path, pages = "/api/models?full=true&limit=4", list[list[str]]()
    with arena(store) as address:
        whole = ask(address, path)
        monkeypatch.setattr(listing, "MAX_PAGE_BYTES", len(whole.content) // 3)
        while path:
            answer = ask(address, path)
            assert len(answer.content) < len(whole.content) * 0.6
            pages.append(answer.json())
            path = answer.links.get("next", {}).get("url", "").partition(":/")[2].partition("/api")[2]
            path = path and f"/api{path}"
    assert [len(page) for page in pages if page] == [2, 2]
    assert [model for page in pages for model in page] == whole.json()
    assert len(whole.json()[3]["siblings"]) == 50


def test_a_tree_comes_in_pages_that_the_library_follows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = store.blobs.put(b"x")
    paths = ["a", "b-c", "b/a", "b/\u00fc?#%20&;>/1", "b/\u00fc?#%20&;>/2", "b/\u00fc?#%20&;>/3", "d/e/f"]
    with store.write() as connection:
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
        connection.execute(insert(blobs).values(**row, created_ms=1, pinned=True))
        made = create_repo(connection, "model", create_account(connection, "ada"), "one", False, HubLimits())
        files = [File(path, blob.sha256, 1, False, blob.git_sha1) for path in paths]
        write_commit(connection, made.id, made.name, made.head, Message("m"), "ada", files)
    monkeypatch.setenv("NO_PROXY", "*")
    with arena(store) as address:
        api = HfApi(f"http://{address[0]}:{address[1]}", token=False)

        def listed(folder: str | None, recursive: bool) -> list[Any]:
            return list(api.list_repo_tree("ada/one", folder, recursive=recursive))

        asked = [(None, True), (None, False), ("b/\u00fc?#%20&;>", False)]
        whole = [listed(*what) for what in asked]
        monkeypatch.setattr(listing, "MAX_TREE_PAGE", 2)
        first = ask(address, "/api/models/ada/one/tree/main?recursive=true")
        assert [found["path"] for found in first.json()] == ["a", "b"] and first.links["next"]["url"].startswith("http")
        assert [listed(*what) for what in asked] == whole
    assert [found.path for found in whole[0]] == [
        "a",
        "b",
        "b/a",
        paths[3][:-2],
        *paths[3:6],
        "b-c",
        "d",
        "d/e",
        "d/e/f",
    ]
    assert [[found.path for found in each] for each in whole[1:]] == [["a", "b", "b-c", "d"], paths[3:6]]


def test_who_waits_for_a_list_waits_for_no_other_of_its_address_and_for_nobody_who_has_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, listed, made, came = repos.list_repos, threading.Event(), list[str](), list[str]()

    def watched(*what: Any, **wanted: Any) -> Any:
        made.append(wanted["author"])
        assert listed.wait(PATIENCE_S)
        return lists(*what, **wanted)

    def named(scope: Any) -> str:
        came.append(scope["query_string"].decode()[-5:])
        return came[-1][:3]

    monkeypatch.setattr(repos, "list_repos", watched)
    monkeypatch.setattr(context, "client_of", named)
    with arena(store, hub_limits=HubLimits(listings_at_once=1)) as address, ThreadPoolExecutor(4) as crowd:

        def begin(who: str) -> Future[httpx.Response]:
            answer = crowd.submit(ask, address, f"/api/models?author={who}")
            eventually(lambda: who in came, PATIENCE_S)
            return answer

        answers = [begin(who) for who in ("eve-1", "eve-2", "eve-3")]
        say(address, b"GET /api/models?author=bob-1 HTTP/1.1\r\nHost: localhost\r\n\r\n").close()
        eventually(lambda: "bob-1" in came, PATIENCE_S)
        answers.append(begin("ann-1"))
        ask(address)  # the server has heard by now who left
        listed.set()
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert made == ["eve-1", "ann-1", "eve-2", "eve-3"]


def test_downloads_are_counted_together_and_none_is_lost_or_doubled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = store.blobs.put(b"model")
    with store.write() as connection:
        row = {"sha256": blob.sha256, "size": blob.size, "git_sha1": blob.git_sha1}
        connection.execute(insert(blobs).values(**row, created_ms=1, pinned=True))
        account, files = create_account(connection, "ada"), [File("a.onnx", blob.sha256, 5, False, blob.git_sha1)]
        for name in ("one", "two"):
            made = create_repo(connection, "model", account, name, False, HubLimits())
            write_commit(connection, made.id, made.name, made.head, Message("m"), "ada", files)

    def downloads() -> dict[str, int]:
        with store.read() as connection:
            return {repo.name: repo.downloads for repo in repos.list_repos(connection)}

    add, tried = repos.add_downloads, list[Any]()

    def add_at_second_try(connection: Any, counts: Any) -> None:
        tried.append(counts)
        add(connection, counts)
        if len(tried) == 1:
            raise exc.OperationalError("UPDATE", {}, Exception("the server is restarted"))

    monkeypatch.setattr(repos, "add_downloads", add_at_second_try)
    monkeypatch.setattr(download_counts, "WRITE_EVERY_S", PATIENCE_S)
    with arena(store) as address:
        for number in range(9):
            assert ask(address, f"/ada/{'two' if number % 3 else 'one'}/resolve/main/a.onnx").content == b"model"
        ask(address, "/ada/one/resolve/main/a.onnx", method="HEAD")
        assert ask(address, "/ada/one/resolve/main/a.onnx", headers={"Range": "bytes=0-1"}).status_code == 206
    assert downloads() == {"ada/one": 3, "ada/two": 6}
    assert len(tried) == 2, "at once and, after this failed, at the end"
