"""Everything a client does with a hub, run by each version of `huggingface_hub` in its own environment.

Stands alone: only the client library is installed there. Each step asserts what the reference hub would answer.
"""

import hashlib
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.utils import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

CARD = """---
library_name: ml-agents
tags: {tags}
---
# A team
"""
REPO = "ada/SoccerTwos-1"
CHECKPOINT_BYTES = 28_000_000


def refuses(error: type[Exception], call: object, *args: object, **kwargs: object) -> Exception:
    try:
        call(*args, **kwargs)  # type: ignore[operator]
    except error as refusal:
        return refusal
    raise AssertionError(f"{call} did not raise {error.__name__}")


def make_run(folder: Path) -> None:
    (folder / "run_logs").mkdir(parents=True)
    (folder / "run_logs" / "timers.json").write_text("{}")
    (folder / "SoccerTwos.onnx").write_bytes(os.urandom(1_770_000))
    (folder / "SoccerTwos-5000.pt").write_bytes(os.urandom(CHECKPOINT_BYTES))
    (folder / "configuration.yaml").write_text("behaviors: {}\n")
    (folder / "empty.txt").touch()
    (folder / "README.md").write_text(CARD.format(tags="[ML-Agents-SoccerTwos, reinforcement-learning]"))


def create_and_push(api: HfApi, run: Path) -> str:
    assert api.whoami()["name"] == "ada"
    url = api.create_repo(REPO)
    assert str(url).endswith(f"/{REPO}") and url.repo_id == REPO, url
    assert api.create_repo(REPO, exist_ok=True).repo_id == REPO
    assert "exists already" in str(refuses(HfHubHTTPError, api.create_repo, REPO))
    assert "belongs to" in str(refuses(HfHubHTTPError, api.create_repo, "grace/mine"))
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id=REPO)
    api.upload_folder(folder_path=run, repo_id=REPO, commit_message="First Push")
    head = api.model_info(REPO).sha
    assert re.fullmatch("[0-9a-f]{40}", head)
    api.upload_folder(folder_path=run, repo_id=REPO, commit_message="the same again")
    assert api.model_info(REPO).sha == head, "an unchanged push must not make a commit"
    return head


def find(api: HfApi) -> None:
    def listed(**query: object) -> list[str]:
        return [model.id for model in api.list_models(**query)]

    three = ["reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos"]
    assert listed(filter=three) == [REPO] == listed(author="ada") == listed(search="soccertwos-1")
    assert listed(filter=[*three, "onnx"], sort="downloads", limit=5) == [REPO]
    assert listed(filter=[*three, "other"]) == [] == listed(author="grace")
    (found,) = api.list_models(filter=three, full=True)
    assert found.library_name == "ml-agents" and not found.private and found.created_at is not None
    assert "SoccerTwos.onnx" in [sibling.rfilename for sibling in found.siblings]


def inspect(api: HfApi, run: Path, head: str) -> None:
    info = api.model_info(REPO, files_metadata=True)
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings}
    assert sizes["SoccerTwos-5000.pt"] == CHECKPOINT_BYTES and sizes["empty.txt"] == 0
    assert api.model_info(REPO, revision=head).sha == head
    assert info.card_data.library_name == "ml-agents"
    names = sorted(api.list_repo_files(REPO))
    assert names == sorted(["config.json", *(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file())])
    top = {item.path: type(item).__name__ for item in api.list_repo_tree(REPO)}
    assert top["run_logs"] == "RepoFolder" and "run_logs/timers.json" not in top
    assert [item.path for item in api.list_repo_tree(REPO, "run_logs")] == ["run_logs/timers.json"]
    found = api.get_paths_info(REPO, ["config.json", "run_logs", "missing"])
    assert sorted(item.path for item in found) == ["config.json", "run_logs"]
    history = api.list_repo_commits(REPO)
    assert [history[0].commit_id, history[-1].title] == [head, "initial commit"]
    assert history[0].title.startswith("First Push") and history[0].authors == ["ada"]
    assert [(branch.name, branch.target_commit) for branch in api.list_repo_refs(REPO).branches] == [("main", head)]
    assert api.file_exists(REPO, "config.json") and not api.file_exists(REPO, "missing")
    refuses(RevisionNotFoundError, api.model_info, REPO, revision="f" * 40)
    refuses(RepositoryNotFoundError, api.model_info, "ada/missing")


def download(run: Path, work: Path, head: str) -> None:
    local = Path(snapshot_download(REPO, cache_dir=work / "cache"))
    assert local.name == head
    for path in (p for p in run.rglob("*") if p.is_file()):
        copy = local / path.relative_to(run)
        assert hashlib.sha256(copy.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest(), path
    one = hf_hub_download(REPO, "run_logs/timers.json", revision=head, cache_dir=work / "other")
    assert Path(one).read_text() == "{}"
    refuses(EntryNotFoundError, hf_hub_download, REPO, "missing.bin", cache_dir=work / "other")


def change(api: HfApi, head: str) -> None:
    api.delete_file("config.json", REPO)
    api.delete_folder("run_logs", REPO)
    assert "run_logs/timers.json" not in api.list_repo_files(REPO)
    assert "run_logs/timers.json" in api.list_repo_files(REPO, revision=head)
    stale = refuses(
        HfHubHTTPError, api.upload_file, path_or_fileobj=b"1", path_in_repo="a", repo_id=REPO, parent_commit=head
    )
    assert "412" in str(stale), stale
    card = CARD.format(tags="ML-Agents-SoccerTwos, comma").encode()
    api.upload_file(path_or_fileobj=card, path_in_repo="README.md", repo_id=REPO)
    assert {"comma", "ML-Agents-SoccerTwos", "ml-agents", "onnx"} == set(api.model_info(REPO).tags)
    api.update_repo_settings(REPO, private=True)
    assert api.model_info(REPO).private
    refuses(RepositoryNotFoundError, HfApi(token=False).model_info, REPO)
    refuses(RepositoryNotFoundError, HfApi(token=os.environ["OTHER_TOKEN"]).model_info, REPO)
    api.update_repo_settings(REPO, private=False)
    assert not HfApi(token=False).model_info(REPO).private


def bad_card(api: HfApi) -> None:
    broken = b"---\ntags: [unclosed\n---\n"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api.upload_file(path_or_fileobj=broken, path_in_repo="README.md", repo_id=REPO)
    assert any("not valid YAML" in str(warning.message) for warning in caught)
    assert api.model_info(REPO).tags == ["onnx"]
    bomb = b"---\na: &a [x, x]\nb: &b [*a, *a]\ntags: [*b, *b]\n---\n"
    refusal = refuses(ValueError, api.upload_file, path_or_fileobj=bomb, path_in_repo="README.md", repo_id=REPO)
    assert "anchor or alias" in str(refusal)


def datasets(api: HfApi, work: Path) -> None:
    name = "ada/results"
    api.create_repo(name, repo_type="dataset", private=True)
    api.upload_file(path_or_fileobj=b"a,b\n", path_in_repo="d/r.csv", repo_id=name, repo_type="dataset")
    assert api.dataset_info(name).private
    assert [found.id for found in api.list_datasets(author="ada")] == [name]
    local = hf_hub_download(name, "d/r.csv", repo_type="dataset", cache_dir=work / "data")
    assert Path(local).read_text() == "a,b\n"
    api.delete_repo(name, repo_type="dataset")
    refuses(RepositoryNotFoundError, api.dataset_info, name)


def main() -> None:
    work = Path(tempfile.mkdtemp(dir=sys.argv[1]))
    run, api = work / "run", HfApi()
    make_run(run)
    head = create_and_push(api, run)
    find(api)
    inspect(api, run, head)
    download(run, work, head)
    change(api, head)
    bad_card(api)
    datasets(api, work)
    api.delete_repo(REPO)
    refuses(RepositoryNotFoundError, api.model_info, REPO)
    assert list(api.list_models(author="ada")) == []
    print("all operations passed")


main()
