"""`palus arena`: hub, arena and pages of a laptop, a class or a lab, in one process and its workers."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from palus.cli.arena_start import Place, Role, check_proxies, check_public_urls, listen, serving, welcome
from palus.cli.options import GAMES_LISTED, complete_game
from palus.cli.output import stdout, stop_signal
from palus.types import DEFAULT_GAME

EPILOG = """
Everything is kept in the folder of --data: stop it with Ctrl-C, start it again, it goes on where it was.

Examples:

  # on this machine only, at http://127.0.0.1:8000
  palus arena

  # for a class in the same network; opens the leaderboard
  palus arena --host 0.0.0.0 --open

  # under a name of its own
  palus arena --host 0.0.0.0 --public-url http://arena.school.example:8000

  # also ranks models/<owner>/<name>/SoccerTwos.onnx
  palus arena --pool models

  # also duels in Doom; takes palus[doom,video]
  palus arena --game SoccerTwos --game doom_duel

  # the reference competition's rounds, every four hours
  palus arena --mode rounds

  # workers elsewhere: palus worker
  palus arena --database postgresql+psycopg://palus@db/palus --workers 0

  # models and videos in an object store; takes palus[cluster]
  palus arena --blobs s3://bucket/arena

  # pages and hub alone, as many of these as wanted
  palus arena --database URL --role web

  # the matches; a second one takes over when the first ends
  palus arena --database URL --role scheduler
"""


def arena(
    data: Annotated[Path, typer.Option(help="Folder of everything that is kept.")] = Path("arena"),
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is the whole network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    public_url: Annotated[
        list[str] | None,
        typer.Option(help="http://NAME or https://NAME:PORT by which others reach it; may be repeated.", metavar="URL"),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded-For is believed; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, max=1024, help="Processes that play on this machine. Default: cores minus one.")
    ] = None,
    game: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GAME",
            autocompletion=complete_game,
            help=f"{GAMES_LISTED}; may be repeated. Default: {DEFAULT_GAME}.",
        ),
    ] = None,
    duel_minutes: Annotated[float, typer.Option(min=0.02, max=10, help="Length of a duel in Doom.")] = 2.0,
    mode: Annotated[
        Literal["continuous", "rounds"], typer.Option(help="Play without pause, or the reference's rounds.")
    ] = "continuous",
    round_interval: Annotated[float, typer.Option(min=1, help="Seconds between rounds.")] = 4 * 3600.0,
    season: Annotated[int, typer.Option(min=1, max=10**9, help="Number of the season that matches belong to.")] = 1,
    repos_per_owner: Annotated[
        int, typer.Option(min=0, max=10**9, help="Ranked repositories per owner; 0: no limit.")
    ] = 10,
    pool: Annotated[Path | None, typer.Option(help="Also rank OWNER/NAME/<env>.onnx below this folder.")] = None,
    huggingface: Annotated[bool, typer.Option("--huggingface", help="Also rank models of huggingface.co.")] = False,
    database: Annotated[str | None, typer.Option(help="SQLAlchemy URL. Default: SQLite in --data.")] = None,
    blobs: Annotated[
        str | None, typer.Option(help="URL of models and videos, such as s3://bucket/arena. Default: in --data.")
    ] = None,
    role: Annotated[
        Role, typer.Option(help="What this process does: everything; pages and hub (many); matches (one, others wait).")
    ] = "all",
    open_browser: Annotated[bool, typer.Option("--open", help="Open the leaderboard in a browser.")] = False,
) -> None:
    """Run an arena: people push models, matches run without pause, the leaderboard is a page."""
    from palus.arena.ladder.service import Sources
    from palus.arena.ladder.settings import ArenaSettings
    from palus.arena.referee.games import playable_game
    from palus.web.names import Names

    settings = ArenaSettings(
        envs=tuple(playable_game(name).env for name in dict.fromkeys(game or [DEFAULT_GAME])),
        duel_minutes=duel_minutes,
        mode=mode,
        round_interval_s=round_interval,
        season=season,
        repos_per_owner=repos_per_owner,
    )
    public, proxies = check_public_urls(public_url or []), check_proxies(proxy or [])
    count = max(1, (os.cpu_count() or 2) - 1) if workers is None else workers
    with nullcontext() if role == "scheduler" else listen(host, port) as listener:
        port = listener.getsockname()[1] if listener else port
        place = Place(host, port, data, count, open_browser, settings.envs, public, role)
        arguments = (data, database, listener, settings, Sources(pool, huggingface), count)
        served = serving(*arguments, blobs=blobs, role=role, names=Names.of(host, public), proxies=proxies)
        with served as (store, new_admin, pages):
            threading.Thread(target=welcome, args=(store, place, new_admin), daemon=True).start()
            stop = stop_signal()
            while not stop.wait(1.0) and (pages is None or pages.is_alive()):
                pass
    stdout.print("The arena has stopped; nothing is lost. The same command goes on.")
