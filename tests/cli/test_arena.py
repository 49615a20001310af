"""`palus arena` and the commands around it, as processes: started, used, interrupted, started again."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from running_arena import Arena
from small_run import make_run


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """One for both tests; the second ends it."""
    folder = tmp_path_factory.mktemp("running")
    running = Arena(folder / "arena", folder / "home")
    yield running
    running.process.kill()
    running.process.communicate()


CARD = """---
library_name: ml-agents
tags: SoccerTwos, deep-reinforcement-learning, reinforcement-learning, ML-Agents-SoccerTwos
---
# A team, tagged in one string as mlagents-push-to-hf does it
"""


def test_a_newcomer_needs_huggingface_hub_alone_and_neither_a_hostile_model_nor_a_second_arena_disturbs(
    arena: Arena, tmp_path: Path
) -> None:
    added = arena.run("account", "add", "newcomer", "--data", str(arena.data))
    assert added.returncode == 0, added.stderr
    # All that a newcomer needs.
    hub = HfApi(endpoint=arena.url, token=re.findall(r"hf_\w+|\S{40,}", added.stdout)[0])
    for name, model in (("hostile", b"no model"), ("team", None)):
        run = make_run(tmp_path / name)
        (run / "README.md").write_text(CARD)
        if model is not None:
            (run / "SoccerTwos.onnx").write_bytes(model)
        hub.create_repo(f"newcomer/{name}", exist_ok=True)
        hub.upload_folder(repo_id=f"newcomer/{name}", folder_path=run, commit_message="First Push")

    refused = arena.run("arena", "--data", str(arena.data), "--port", "0")
    assert refused.returncode == 2 and "runs on this data folder already" in refused.stderr
    made = arena.run("account", "add", "lab", "--scope", "runner", "--data", str(arena.data))
    (tmp_path / "token").write_text(made.stdout)
    worker = arena.run(
        "worker", "--arena", arena.url, "--token-file", str(tmp_path / "token"), "--name", "pc", "--max-jobs", "1"
    )
    assert worker.returncode == 0, worker.stderr
    assert "lab/pc" in {line["name"] for line in arena.read("status")["workers"]}

    standing = arena.wait_for(lambda: arena.standing("newcomer/team"), "no first interval")
    assert standing["games"] >= 2 and standing["half_width"] > 0
    page = arena.read("models/newcomer/hostile")
    (hostile,) = page["revisions"]
    assert hostile["state"] == "refused"
    assert hostile["refusal"]["code"] == "not-onnx"
    assert hostile["refusal"]["remedy"]
    arena.wait_for_matches(arena.read("status")["matches"] + 2)


def test_an_arena_says_what_to_do_stops_cleanly_on_ctrl_c_and_goes_on_where_it_stopped(
    arena: Arena, tmp_path: Path
) -> None:
    said = "".join(arena.said)
    assert "Isolation of models: " in said
    assert re.search(rf"palus push results/mine \S+/mine --hub {arena.url}", said)
    token = arena.data / "admin.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    arena.wait_for_matches(2)

    code, rest = arena.interrupt()
    assert code == 0, rest
    assert "The arena has stopped; nothing is lost." in rest and "Traceback" not in rest

    audited = arena.run("audit", "--sample", "5%", "--data", str(arena.data))
    assert audited.returncode == 0 and "the hash chain is whole" in audited.stdout, audited.stdout
    assert arena.run("recompute", "--data", str(arena.data)).returncode == 0
    unknown = arena.run("verify", "nonsense", "--data", str(arena.data))
    assert unknown.returncode == 2 and "no match nonsense" in unknown.stderr

    again = Arena(arena.data, tmp_path / "home")
    before = again.read("status")["matches"]
    assert before >= 2
    assert "administrator's token" not in "".join(again.said)
    again.wait_for_matches(before + 2)
    assert again.interrupt()[0] == 0
