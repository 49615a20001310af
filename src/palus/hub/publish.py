"""From a run on disk to a published repository: card, training curve, files, and the target they go to.

What needs the arena (a check of the model, a replay) is made by the caller and handed over as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from palus.errors import HubError
from palus.hub import folder_pool
from palus.hub.ids import check_name, check_repo_id
from palus.hub.layout import Content, LocalRun, repository_files
from palus.hub.model_card import CardFacts, gaps_of, is_written_by_us, keep_card, labels_of, write_card
from palus.hub.probe_file import PROBE, PROBE_PICTURE, draw_probe, read_probe
from palus.hub.score import VIDEO, Rating, read_score
from palus.hub.target import HUGGING_FACE, FolderTarget, HubTarget, Target
from palus.hub.training_curve import describe, draw_curves, read_curves

REPLAY, REPLAY_PAGE, CURVE = "replay.match", "replay.html", "training_curve.svg"


@dataclass(frozen=True)
class Published:
    """What a push did. place: address or folder. changed: whether there is a new revision. kept_card: whose README.md
    was kept, "the folder's" or "the repository's"; None when palus wrote it. files, bytes: of the whole repository.
    stale_probe: probe.json was left out, since it is about another model.
    """

    place: str
    revision: str
    changed: bool
    kept_card: str | None
    files: int
    bytes: int
    stale_probe: bool = False


def check_id(target: Target, repo_id: str) -> tuple[str, str]:
    """Owner and name of an id that this target takes. Raises HubError."""
    owner, slash, name = repo_id.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise HubError(f"{repo_id}: not the id of a repository; expected OWNER/NAME, such as ada/striker")
    if target == HubTarget(HUGGING_FACE):
        check_name(owner, "account name")
        check_name(name, "repository name")
    else:
        check_repo_id(owner, name)
    return owner, name


def publish(
    run: LocalRun,
    repo_id: str,
    target: Target,
    *,
    message: str = "Push to Hub",
    private: bool = False,
    new_card: bool = False,
    rating: Rating | None = None,
    made: Mapping[str, bytes] | None = None,
) -> Published:
    """Push a run to a hub or a folder pool; nothing changes there when nothing changed here.

    new_card: replace a card that a person wrote. rating: for the card. made: more files (replay) by path.
    Raises HubError, StorageError.
    """
    check_id(target, repo_id)
    more = dict(made or {})
    curves = read_curves(run.event_files)
    if curves:
        more[CURVE] = draw_curves(curves)
    probe = read_probe(run.files[PROBE], run.sha256) if PROBE in run.files else None
    stale = PROBE in run.files and probe is None
    if probe is not None:
        more[PROBE_PICTURE] = draw_probe(probe)
    elif stale:
        kept_files = {path: file for path, file in run.files.items() if path not in (PROBE, PROBE_PICTURE)}
        run = replace(run, files=kept_files)
    card, kept = (None, None) if new_card else _kept_card(run, repo_id, target)
    if card is None:
        facts = CardFacts(
            run.game,
            run.provenance,
            repo_id,
            target.option,
            rating,
            curve="; ".join(map(describe, curves)) or None,
            replay=REPLAY in more,
            agent=run.is_agent,
            score=read_score(run.model.parent) if run.is_agent else None,
            video=VIDEO in run.files,
            probe=probe,
            in_executable=run.is_of_executable,
            unity_gaps={behavior: gaps_of(model) for behavior, model in run.models.items()},
        )
        card = write_card(facts)
    files = repository_files(run, card, more)

    if isinstance(target, FolderTarget):
        revision, changed = folder_pool.push_to_pool(target.path, repo_id, files, run.owns)
        place = str(target.path.joinpath(*repo_id.split("/")))
    else:
        from palus.hub import client  # here, so that a folder pool needs no huggingface_hub

        revision, changed = client.push_to_hub(target.url, repo_id, files, run.owns, message=message, private=private)
        place = f"{target.url}/{repo_id}"
    return Published(place, revision, changed, kept, len(files), sum(map(_size, files.values())), stale)


def fetch(repo_id: str, target: Target, folder: Path, *, revision: str | None = None, force: bool = False) -> None:
    """Copy a published repository into `folder`.

    revision: a commit of a hub; None: the newest. force: write into a folder that already holds something.
    Raises HubError, StorageError.
    """
    check_id(target, repo_id)
    if not force and (folder.is_file() or (folder.is_dir() and any(folder.iterdir()))):
        raise HubError(f"{folder}: is there and not empty; name another folder, or replace its files with --force")
    if isinstance(target, FolderTarget):
        if revision is not None:
            raise HubError(f"{target.path}: a folder pool keeps no older revisions; leave out --revision")
        folder_pool.pull_from_pool(target.path, repo_id, folder)
    else:
        from palus.hub import client

        client.pull_from_hub(target.url, repo_id, folder, revision)


def _kept_card(run: LocalRun, repo_id: str, target: Target) -> tuple[str | None, str | None]:
    """README.md with somebody's own words, and whose: the folder's own, else those at the target; None for nobody's."""
    labels = labels_of(run.game, run.is_agent)
    if run.readme is not None and not is_written_by_us(run.readme):
        return keep_card(run.readme, labels, "README.md of the folder"), "the folder's"
    published = _published_card(repo_id, target)
    if published is not None and not is_written_by_us(published):
        return keep_card(published, labels, f"README.md of {repo_id}"), "the repository's"
    return None, None


def _published_card(repo_id: str, target: Target) -> str | None:
    if isinstance(target, HubTarget):
        from palus.hub import client

        return client.read_card(target.url, repo_id)
    folder = folder_pool.repository_folder(target.path, repo_id)
    readme = None if folder is None else folder / "README.md"
    if readme is None or readme.is_symlink() or not readme.is_file():
        return None
    return readme.read_text("utf-8", errors="replace")


def _size(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size
