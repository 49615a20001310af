"""A folder pool: equal after pull, nothing new when nothing changed, the old revision or the new one after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_run import make_run

from palus.errors import HubError
from palus.hub.folder_pool import find_repositories, repository_folder, revision_of
from palus.hub.layout import read_run
from palus.hub.publish import fetch, publish
from palus.hub.target import FolderTarget


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def pool(tmp_path: Path) -> FolderTarget:
    return FolderTarget(tmp_path / "pool")


def test_what_was_pushed_is_pulled(tmp_path: Path, pool: FolderTarget) -> None:
    run = make_run(tmp_path / "run")
    before = contents(run)
    done = publish(read_run(run), "ada/striker", pool, made={"replay.match": b"goals"})
    assert done.changed and done.kept_card is None
    assert contents(run) == before
    fetch("ada/striker", pool, tmp_path / "pulled")
    assert contents(tmp_path / "pulled") == contents(pool.path / "ada" / "striker")
    pulled = read_run(tmp_path / "pulled")
    assert pulled.sha256 == read_run(run).sha256
    assert {"training_curve.svg", "replay.match", "config.json"} <= pulled.files.keys()
    assert [*find_repositories(pool.path)] == ["ada/striker"]


def test_a_card_names_the_folder_that_is_pushed_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pool" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "pool" / "below")
    named = [FolderTarget(Path(word)).option for word in (".", "..", "../../pool", "/")]
    assert named == [f" --hub folder:{name}" for name in ("below", "pool", "pool", "/")]


def test_an_unchanged_push_makes_no_revision(tmp_path: Path, pool: FolderTarget) -> None:
    run = read_run(make_run(tmp_path / "run"))
    first = publish(run, "ada/striker", pool)
    folder = (pool.path / "ada" / "striker").stat()
    second = publish(run, "ada/striker", pool)
    assert (second.revision, second.changed) == (first.revision, False)
    assert (pool.path / "ada" / "striker").stat().st_ino == folder.st_ino
    assert [p.name for p in (pool.path / "ada").iterdir()] == ["striker"]


def test_a_later_push_drops_old_checkpoints_and_keeps_what_others_added(tmp_path: Path, pool: FolderTarget) -> None:
    run = make_run(tmp_path / "run")
    first = publish(read_run(run), "ada/striker", pool)
    published = pool.path / "ada" / "striker"
    (published / "photo.png").write_bytes(b"a picture for the card")
    (run / "SoccerTwos" / "SoccerTwos-1000000.onnx").unlink()
    second = publish(read_run(run), "ada/striker", pool)
    assert second.changed and second.revision != first.revision
    assert not (published / "SoccerTwos" / "SoccerTwos-1000000.onnx").exists()
    assert (published / "SoccerTwos" / "SoccerTwos-2000000.onnx").exists()
    assert (published / "photo.png").read_bytes() == b"a picture for the card"


def test_words_written_at_the_repository_survive_a_push_unless_a_new_card_is_wanted(
    tmp_path: Path, pool: FolderTarget
) -> None:
    run = read_run(make_run(tmp_path / "run"))
    publish(run, "ada/striker", pool)
    card = pool.path / "ada" / "striker" / "README.md"
    card.write_text("my words\n")
    assert publish(run, "ada/striker", pool).kept_card == "the repository's"
    assert card.read_text().endswith("---\nmy words\n") and "- ML-Agents-SoccerTwos" in card.read_text()
    assert publish(run, "ada/striker", pool, new_card=True).kept_card is None
    assert "my words" not in card.read_text()


PUSH_AND_DIE = """
import os, signal, sys
from pathlib import Path
from palus.hub.layout import read_run
from palus.hub.publish import publish
from palus.hub.target import FolderTarget

run, pool, renames_before_the_kill = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
rename = Path.rename

def count_and_die(self, target):
    global renames_before_the_kill
    if renames_before_the_kill == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    renames_before_the_kill -= 1
    return rename(self, target)

Path.rename = count_and_die
publish(read_run(run), "ada/striker", FolderTarget(pool))
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_a_push_killed_before_or_between_its_renames_leaves_the_old_revision(
    tmp_path: Path, pool: FolderTarget, renames: int
) -> None:
    old, new = make_run(tmp_path / "old"), make_run(tmp_path / "new", seed=1)
    first = publish(read_run(old), "ada/striker", pool)
    command = [sys.executable, "-c", PUSH_AND_DIE, str(new), str(pool.path), str(renames)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    found = find_repositories(pool.path)
    assert {repo_id: revision_of(folder) for repo_id, folder in found.items()} == {"ada/striker": first.revision}
    fetch("ada/striker", pool, tmp_path / "pulled")
    assert read_run(tmp_path / "pulled").sha256 == read_run(old).sha256

    after = publish(read_run(new), "ada/striker", pool)
    home = pool.path / "ada" / "striker"
    assert after.changed and repository_folder(pool.path, "ada/striker") == home
    assert revision_of(home) == after.revision
    assert read_run(home).sha256 == read_run(new).sha256
    assert not list((pool.path / "ada").glob(".striker.old.*"))


@pytest.mark.parametrize("repo_id", ["../striker", "ada/..", "ada", "ada/b/c", "ada/.hidden", "api/x", "/etc/x"])
def test_ids_that_lead_out_of_the_pool_are_refused(tmp_path: Path, pool: FolderTarget, repo_id: str) -> None:
    with pytest.raises(HubError):
        publish(read_run(make_run(tmp_path / "run")), repo_id, pool)
    assert not pool.path.exists()


def test_links_in_a_pool_are_not_followed(tmp_path: Path, pool: FolderTarget) -> None:
    publish(read_run(make_run(tmp_path / "run")), "ada/striker", pool)
    (tmp_path / "secret").write_text("of another user")
    (pool.path / "ada" / "striker" / "notes.txt").symlink_to(tmp_path / "secret")
    fetch("ada/striker", pool, tmp_path / "pulled")
    assert not (tmp_path / "pulled" / "notes.txt").exists()


def test_links_in_a_run_are_not_published(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{mine: 1}")
    run = make_run(tmp_path / "run")
    for name in ("README.md", "configuration.yaml", "bundle.json", "notes.txt"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(tmp_path / "secret")
    found = read_run(run)
    assert (found.readme, found.configuration) == (None, {}) and "mine" not in found.facts
    assert not {"notes.txt", "README.md"} & found.files.keys()


def test_a_pull_does_not_write_over_a_folder_unless_forced(tmp_path: Path, pool: FolderTarget) -> None:
    run = make_run(tmp_path / "run")
    publish(read_run(run), "ada/striker", pool)
    with pytest.raises(HubError, match=r"not empty.*--force"):
        fetch("ada/striker", pool, run)
    fetch("ada/striker", pool, run, force=True)
    with pytest.raises(HubError, match=r"no such repository in .*; it holds ada/striker"):
        fetch("ada/keeper", pool, tmp_path / "other")
    with pytest.raises(HubError, match="keeps no older revisions"):
        fetch("ada/striker", pool, tmp_path / "other", revision="a" * 40)
