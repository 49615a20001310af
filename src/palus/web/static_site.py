"""The whole site as files, for any static server: pages, the JSON they read, replays and downloads.

    index.html match.html ... static/      the pages, told by meta tags to read data/ instead of the interface, and whom
                                           they can compare
    data/leaderboard/{env}.json ...        what /api/arena/... answered at the moment of the export
    data/matches/{id}.json {id}.match      the matches that pages link to, up to a limit: those of boards and models,
                                           then those in other tables, newest first; videos, too, are called .match
    data/downloads/{env}/...               CSV, Parquet and JSON
    offline.html offline/{id}.html         the boards and the newest replays, each a page that opens from disk

Browsers do not let a page from disk read other files, so from disk only offline.html is of use.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape, unescape
from itertools import product
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from palus.arena.ladder.log import read_match
from palus.arena.ladder.match_files import read_replay
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.games import game_of
from palus.errors import ArenaError, HubError, StorageError
from palus.hub.repos import read_file
from palus.store import Store
from palus.web.api.analytics import analytics, team_results
from palus.web.api.compare import compare
from palus.web.api.leaderboard import LeaderboardRow, board_order, environments, leaderboard, recent_matches
from palus.web.api.matches import MatchPage, match_page
from palus.web.api.models import ModelPage, model_page
from palus.web.api.router import BOARDS
from palus.web.api.status import log_head, status
from palus.web.api.view import View, Views
from palus.web.exports import TABLES, write_table
from palus.web.page import page_html
from palus.web.pages import site_folder
from palus.web.shapes import Shape

MARKER = ".palus-site"
"""Says that a folder is an export, which the next one may replace."""

COMPARED = 20
"""Compare pages are written for each two of the strongest."""
OFFLINE_REPLAYS = 30

_EXCLUDED = {"room.html", "error.html", "watch.html"}
_CARD_FILE = re.compile(r'(src|href)="/(?P<repo>[^/"]+/[^/"]+)/resolve/(?P<revision>[0-9a-f]{40})/(?P<path>[^"]+)"')
_IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


@dataclass(frozen=True)
class Summary:
    """What an export holds. left_out: matches that pages link to, beyond the limit."""

    models: int
    matches: int
    left_out: int
    files: int
    bytes: int


def export_site(store: Store, folder: Path, *, arena: ArenaSettings | None = None, max_matches: int = 5000) -> Summary:
    """Write the site to a folder: a new one, an empty one, or an earlier export, which is replaced at the end.

    Raises ArenaError when something else is there or the pages are not built, StorageError when it cannot be written.
    """
    site = site_folder()
    if not (site / "index.html").is_file():
        raise ArenaError("the pages are not built; run `make web` in a checkout of palus, or install a release")
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARKER).is_file())):
        raise ArenaError(f"{folder}: is neither empty nor an earlier export; choose another folder")
    draft = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _copy_pages(site, draft)
        summary = _Export(Views(store, arena=arena).current(), draft, max_matches).write()
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except OSError as error:
        raise StorageError(f"{folder}: could not be written ({error.strerror}); free space and try again") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return summary


def _copy_pages(site: Path, folder: Path) -> None:
    shutil.copytree(site / "static", folder / "static")
    for page in site.glob("*.html"):
        if page.name not in _EXCLUDED:
            text = page.read_text("utf-8").replace('="/static/', '="static/')
            (folder / page.name).write_text(text.replace('content="/api/arena"', 'content="data"'), "utf-8")
    (folder / MARKER).touch()
    (folder / ".nojekyll").touch()  # GitHub's pages would leave out what begins with an underscore


class _Export:
    """One export: the view of one moment and the folder that it goes to."""

    def __init__(self, view: View, folder: Path, max_matches: int) -> None:
        self._view, self._folder, self._max_matches = view, folder, max_matches
        self._store = view.store
        self._listed: dict[str, int] = {}  # matches in tables of teams and comparisons, and when they were played

    def write(self) -> Summary:
        """Everything but the pages themselves."""
        view = self._view
        games = environments(view)
        envs = [line.env for line in games.environments]
        self._write("envs", games)
        self._write("head", log_head(view))
        self._write("status", status(view))
        for env in envs:
            self._write_env(env)
        self._name_compared(envs)
        models = [self._write_model(repo) for repo in view.roster.entries_of]
        first = dict(self._linked_matches(envs, models))
        linked = self._listed | first
        chosen = sorted(linked, key=lambda match: (match in first, linked[match]), reverse=True)[: self._max_matches]
        pages = [self._write_match(match_id) for match_id in chosen]
        self._write_offline(envs, pages)
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        return Summary(len(models), len(pages), len(linked) - len(chosen), len(files), size)

    def _write(self, name: str, shape: Shape | None) -> None:
        if shape is not None:
            self._path(f"data/{name}.json").write_bytes(shape.model_dump_json().encode())

    def _path(self, name: str) -> Path:
        """Of a file of the export, in a folder that is there."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _write_env(self, env: str) -> None:
        view = self._view
        for name, build in BOARDS.items():
            self._write(f"{name}/{env}", build(view, env))
        for team in (line.team for line in analytics(view, env).teams):
            self._write(f"analytics/{env}/{team}", results := team_results(view, env, team))
            self._listed |= {game.match: game.at_ms for game in results.games} if results else {}
        for a, b in product(self._strongest(env), repeat=2):
            self._write(f"compare/{env}/{a}/{b}", comparison := compare(view, env, a, b))
            self._listed |= {line.id: line.at_ms for line in comparison.matches} if comparison else {}
        for name in TABLES:
            write_table(view, env, name, self._path(f"data/downloads/{env}/{name}"))

    def _strongest(self, env: str) -> list[str]:
        """Whose compare pages are written."""
        return [self._view.roster.player(rated.sha256).repo for rated in board_order(self._view, env)[:COMPARED]]

    def _name_compared(self, envs: list[str]) -> None:
        """Tell the pages, which link no others."""
        known = escape(json.dumps({env: self._strongest(env) for env in envs}))
        for page in self._folder.glob("*.html"):
            head, meta, rest = page.read_text("utf-8").partition('<meta name="palus-data"')
            page.write_text(f'{head}<meta name="palus-compared" content="{known}" />\n    {meta}{rest}', "utf-8")

    def _write_model(self, repo: str) -> ModelPage:
        page = model_page(self._view, repo)
        assert page is not None, "a repository with entries has a page"
        page = page.model_copy(update={"card_html": _CARD_FILE.sub(self._keep_card_file, page.card_html)})
        self._write(f"models/{repo}", page)
        return page

    def _keep_card_file(self, link: re.Match[str]) -> str:
        """Images of a card come along; other files of strangers would be pages of the server that shows the export."""
        path = PurePosixPath(unquote(unescape(link["path"])))
        if link[1] != "src" or path.suffix.lower() not in _IMAGES:
            return ""
        try:
            data = read_file(self._store, link["repo"], link["revision"], str(path))
        except (HubError, StorageError):  # the file was never pushed, or its bytes are gone
            return ""
        name = f"data/cards/{hashlib.sha256(data).hexdigest()}{path.suffix.lower()}"
        self._path(name).write_bytes(data)
        return f'src="{name}"'

    def _linked_matches(self, envs: list[str], models: Iterable[ModelPage]) -> Iterator[tuple[str, int]]:
        """Matches of the boards and of models' pages, and when they were played."""
        for env in envs:
            yield from ((match.id, match.at_ms) for match in recent_matches(self._view, env).matches)
        for model in models:
            for performance in model.performance:
                for lines in (performance.recent, performance.best_wins, performance.worst_losses):
                    yield from ((line.id, line.at_ms) for line in lines)

    def _write_match(self, match_id: str) -> MatchPage:
        page = match_page(self._view, match_id)
        assert page is not None, "the log keeps what it has"
        if page.replay is not None and page.replay.url is not None:
            url = f"data/matches/{match_id}.match"
            self._path(url).write_bytes(self._replay(match_id))
            page = page.model_copy(update={"replay": page.replay.model_copy(update={"url": url})})
        self._write(f"matches/{match_id}", page)
        return page

    def _replay(self, match_id: str) -> bytes:
        with self._store.read() as connection:
            record = read_match(connection, match_id)
        assert record is not None, "the log keeps what it has"
        return read_replay(self._store, record)

    def _write_offline(self, envs: list[str], pages: list[MatchPage]) -> None:
        kept = [page for page in pages if page.replay is not None and page.replay.url is not None]
        shown = [page for page in kept if game_of(page.env).is_drawn][:OFFLINE_REPLAYS]
        for page in shown:
            title = f"{page.blue.repo} vs {page.purple.repo}"
            self._path(f"offline/{page.id}.html").write_text(page_html(self._replay(page.id), title), "utf-8")
        boards = "".join(_board_html(self._view, env) for env in envs)
        links = "".join(
            f'<li><a href="offline/{page.id}.html">{escape(f"{page.blue.repo} against {page.purple.repo}")}</a></li>\n'
            for page in shown
        )
        (self._folder / "offline.html").write_text(_OFFLINE.format(boards=boards, links=links), "utf-8")


_OFFLINE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>palus arena</title>
</head>
<body>
<main>
<h1>palus arena</h1>
{boards}<h2>Replays</h2>
<ul>
{links}</ul>
</main>
</body>
</html>
"""

_COLUMNS = ("Rank", "Model", "Rating", "±", "Games")


def _board_html(view: View, env: str) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    rows = "".join(
        f"<tr><td>{_ranks(row)}</td><td>{escape(row.repo)}</td><td>{row.rating:.0f}</td>"
        f"<td>{row.half_width:.0f}</td><td>{row.games}</td></tr>\n"
        for row in leaderboard(view, env).rows
    )
    return f"<h2>{escape(env)}</h2>\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"


def _ranks(row: LeaderboardRow) -> str:
    """A range where the results leave one open, as on the leaderboard."""
    return "–".join(map(str, dict.fromkeys((row.rank_best, row.rank_worst))))
