"""Push and pull with a real hub on loopback: one commit, nothing for nothing, tokens kept apart, clear errors."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from hub_server import RunningHub, running_hub
from huggingface_hub import HfApi, ModelInfo
from small_run import make_run

from palus.errors import HubError
from palus.hub import client
from palus.hub.layout import read_run
from palus.hub.publish import fetch, publish
from palus.hub.target import HubTarget


@pytest.fixture(autouse=True)
def own_token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the machine's user is read, nothing is left behind."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    stored = tmp_path / "hf" / "stored_tokens"
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_STORED_TOKENS_PATH", str(stored))
    return stored


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def target(hub: RunningHub) -> HubTarget:
    """The hub, with ada signed in."""
    assert client.log_in(hub.url, hub.token("ada")) == "ada"
    return HubTarget(hub.url)


def commits(target: HubTarget, repo_id: str) -> list[str]:
    return [commit.title for commit in HfApi(target.url, token=False).list_repo_commits(repo_id)]


def test_a_run_is_pushed_in_one_commit_found_by_its_tags_and_pulled_as_it_was(
    tmp_path: Path, target: HubTarget
) -> None:
    run = read_run(make_run(tmp_path / "run"))
    done = publish(run, "ada/first", target, message="First push", made={"replay.match": b"goals"})
    assert done.changed
    assert commits(target, "ada/first") == ["First push", "initial commit"]
    found = HfApi(target.url, token=False).list_models(
        filter=["reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos"]
    )
    assert "ada/first" in [model.id for model in found]
    with urllib.request.urlopen(f"{target.url}/ada/first/resolve/main/training_curve.svg") as curve:
        assert (curve.headers["Content-Type"], curve.headers["Content-Disposition"][:10]) == (
            "image/svg+xml",  # so that a card can show it ...
            "attachment",  # ... and its address runs no script
        )
    fetch("ada/first", target, tmp_path / "pulled")
    pulled = read_run(tmp_path / "pulled")
    assert pulled.files.keys() == run.files.keys() | {"config.json", "replay.match", "training_curve.svg"}
    for path, file in run.files.items():
        if path != "README.md":
            assert pulled.files[path].read_bytes() == file.read_bytes()
    assert f"palus pull ada/first rival --hub {target.url}" in (pulled.readme or "")


def test_an_unchanged_push_makes_no_commit_and_a_later_one_drops_old_checkpoints(
    tmp_path: Path, target: HubTarget
) -> None:
    run = make_run(tmp_path / "run")
    first = publish(read_run(run), "ada/keeper", target, message="one")
    again = publish(read_run(run), "ada/keeper", target, message="two")
    assert (again.revision, again.changed) == (first.revision, False)
    (run / "SoccerTwos" / "SoccerTwos-1000000.onnx").unlink()
    third = publish(read_run(run), "ada/keeper", target, message="three")
    assert third.changed and third.revision != first.revision
    titles = commits(target, "ada/keeper")
    assert titles[0] == "three" and "two" not in titles
    paths = HfApi(target.url, token=False).list_repo_files("ada/keeper")
    assert "SoccerTwos/SoccerTwos-1000000.onnx" not in paths
    assert "SoccerTwos/SoccerTwos-2000000.onnx" in paths
    fetch("ada/keeper", target, tmp_path / "first", revision=first.revision)
    assert (tmp_path / "first" / "SoccerTwos" / "SoccerTwos-1000000.onnx").is_file()


def test_a_card_edited_at_the_hub_keeps_its_words(tmp_path: Path, target: HubTarget) -> None:
    run = read_run(make_run(tmp_path / "run"))
    publish(run, "ada/author", target)
    HfApi(target.url, client.token_for(target.url)).upload_file(
        path_or_fileobj=b"---\nlicense: mit\n---\n# My words\n", path_in_repo="README.md", repo_id="ada/author"
    )
    assert publish(run, "ada/author", target).kept_card == "the repository's"
    card = client.read_card(target.url, "ada/author") or ""
    assert card.endswith("# My words\n")
    assert "- ML-Agents-SoccerTwos" in card


def test_a_private_push_is_seen_by_its_owner_only(tmp_path: Path, target: HubTarget, own_token_file: Path) -> None:
    run = read_run(make_run(tmp_path / "run"))
    publish(run, "ada/diary", target)
    publish(run, "ada/diary", target, private=True)
    fetch("ada/diary", target, tmp_path / "mine")
    own_token_file.unlink()
    with pytest.raises(HubError, match=r"no such repository, or it is private and needs: palus login http://127"):
        fetch("ada/diary", target, tmp_path / "theirs")


def test_a_token_is_stored_for_its_hub_alone_and_readable_by_its_owner_alone(
    hub: RunningHub, own_token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = hub.token("ada")
    client.log_in(hub.url, token)
    assert client.token_for(hub.url) == token
    assert client.token_for("http://127.0.0.1:1") is None
    assert client.token_for("https://huggingface.co") is None
    assert stat.S_IMODE(own_token_file.stat().st_mode) == 0o600
    monkeypatch.setenv("HF_TOKEN", "hf_of_another_hub")
    assert client.token_for("http://127.0.0.1:1") is None
    assert client.token_for("https://huggingface.co") == "hf_of_another_hub"


def test_what_goes_wrong_is_said_with_what_to_do(tmp_path: Path, hub: RunningHub, own_token_file: Path) -> None:
    run = read_run(make_run(tmp_path / "run"))
    target, url = HubTarget(hub.url), hub.url
    with pytest.raises(HubError, match=f"no token is stored for this hub; .*palus login {url}"):
        publish(run, "ada/striker", target)
    with pytest.raises(HubError, match=r"the token is not valid"):
        client.log_in(url, "hf_wrong")
    assert not own_token_file.exists()
    client.log_in(url, hub.token("ada", "read"))
    with pytest.raises(HubError, match=r"not allowed .*a token that may write"):
        publish(run, "ada/new-one", target)
    client.log_in(url, hub.token("ada"))
    with pytest.raises(HubError, match=r"not allowed .*an account of yours"):
        publish(run, "grace/striker", target)
    with pytest.raises(HubError, match=r"ada/nothing: .* has no such repository; check the spelling"):
        fetch("ada/nothing", target, tmp_path / "nothing")
    publish(run, "ada/striker", target)
    with pytest.raises(HubError, match=r"has no such revision"):
        fetch("ada/striker", target, tmp_path / "nothing", revision="a" * 40)


def test_a_push_does_not_undo_another_of_the_same_moment(
    tmp_path: Path, target: HubTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_run(make_run(tmp_path / "run"))
    publish(run, "ada/shared", target)
    look = HfApi.model_info

    def look_before_another_pushes(api: HfApi, repo_id: str) -> ModelInfo:
        info = look(api, repo_id)
        api.upload_file(path_or_fileobj=b"theirs", path_in_repo="SoccerTwos/theirs.onnx", repo_id=repo_id)
        return info

    with monkeypatch.context() as patch:
        patch.setattr(HfApi, "model_info", look_before_another_pushes)
        with pytest.raises(HubError, match="somebody else pushed at the same moment; push again"):
            publish(read_run(make_run(tmp_path / "new", seed=1)), "ada/shared", target)
    assert "SoccerTwos/theirs.onnx" in HfApi(target.url, token=False).list_repo_files("ada/shared")


PUSH_AND_DIE = """
import os, signal, sys
from pathlib import Path
import huggingface_hub
from palus.hub.layout import read_run
from palus.hub.publish import publish
from palus.hub.target import HubTarget

huggingface_hub.HfApi.preupload_lfs_files = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
publish(read_run(Path(sys.argv[1])), "ada/mortal", HubTarget(sys.argv[2]))
"""


def test_a_push_killed_before_its_commit_leaves_the_old_revision(
    tmp_path: Path, target: HubTarget, own_token_file: Path
) -> None:
    first = publish(read_run(make_run(tmp_path / "old")), "ada/mortal", target)
    command = [sys.executable, "-c", PUSH_AND_DIE, str(make_run(tmp_path / "new", seed=1)), target.url]
    home = {**os.environ, "HF_TOKEN_PATH": str(own_token_file.parent / "token")}
    assert subprocess.run(command, env=home, check=False).returncode == -signal.SIGKILL
    assert HfApi(target.url, token=False).model_info("ada/mortal").sha == first.revision
    assert publish(read_run(tmp_path / "new"), "ada/mortal", target).changed


def test_a_hub_out_of_reach_is_said_with_the_proxy_that_may_be_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(HubError, match=r"cannot be reached \(.*refused.*check the address, and that `palus arena`"):
            client.log_in(url, "hf_token")
        with pytest.raises(HubError, match=r"cannot be reached"):
            client.pull_from_hub(url, "ada/striker", tmp_path / "striker")
        monkeypatch.setenv("http_proxy", url)
        with pytest.raises(HubError, match=r"export NO_PROXY=192\.168\.7\.7"):
            client.log_in("http://192.168.7.7:8000", "hf_token")
