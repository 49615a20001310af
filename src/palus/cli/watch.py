"""`palus watch`: show a replay in the browser, or write it as one HTML file; or the live page of runs."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from palus.arena.referee.replay import read_replay
from palus.cli.live import serve_runs
from palus.cli.output import stop_signal
from palus.errors import ReplayError
from palus.terminal import printable
from palus.web.page import ADDRESS, make_server, page_html, write_html

EPILOG = """
Examples:

  # a recorded match, from palus match --replay best.match
  palus watch best.match

  # one file that opens anywhere
  palus watch best.match --html best.html

  # a run, while it trains or afterwards: curves, win matrix, fresh matches
  palus watch results/mine

  # both, their curves in the same charts
  palus watch results/mine results/other

  # a league of several runs, from its book: a URL, or its folder
  palus watch s3://bucket/cup
"""


def watch(
    what: Annotated[
        list[str],
        typer.Argument(help="A replay (*.match), or folders of runs and leagues.", metavar="REPLAY|RUN|LEAGUE..."),
    ],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained HTML file of a replay here.")
    ] = None,
    three_d: Annotated[
        bool, typer.Option("--three-d/--flat", help="Put the 3-D view into a replay's page too (0.6 MB more).")
    ] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    port: Annotated[int, typer.Option(help="Port to serve on; 0 takes a free one.", min=0, max=65535)] = 0,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Watch a recorded match, or a run learn.

    A match: a page with the pitch, the score, every player's sensors and choices. Runs: their curves, league, speed
    and time left, and a fresh match of the newest policy; the page follows a run that trains.
    """
    if any("://" in word or Path(word).is_dir() for word in what):
        if html is not None:
            raise ReplayError(f"--html {html}: writes a replay, not a run; leave it out, or give a *.match file")
        serve_runs(what, port, browser=browser, until_eof=until_eof)
        return
    if len(what) > 1:
        raise ReplayError(f"{what[1]}: one replay at a time is shown; give one, or the folders of runs")
    data, contents = read_replay(Path(what[0]))
    if html is not None:
        write_html(html, data, contents.title, three_d=three_d)
        typer.echo(f"Wrote {html} ({html.stat().st_size / 1000:.0f} kB); open it in any browser.")
        return
    stop = stop_signal()
    with make_server(page_html(data, contents.title, three_d=three_d), port) as server:
        address = f"http://{ADDRESS}:{server.server_port}/"
        typer.echo(f"{printable(contents.title)}\nWatch at {address} (Ctrl-C ends)")
        if browser:
            webbrowser.open(address)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="replay").start()
        while not stop.wait(0.5):
            pass
        server.shutdown()
    typer.echo("Ended.")
