"""`palus watch`: show a replay in the browser, or write it as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from palus.arena.referee.replay import read_replay
from palus.web.page import ADDRESS, make_server, page_html, write_html


def watch(
    replay: Annotated[Path, typer.Argument(help="Replay file (*.match) to show.")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained HTML file here instead of serving it.")
    ] = None,
    three_d: Annotated[
        bool, typer.Option("--three-d/--flat", help="Put the 3-D view into the page too (0.6 MB more).")
    ] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    port: Annotated[int, typer.Option(help="Port to serve on; 0 takes a free one.", min=0, max=65535)] = 0,
) -> None:
    """Watch a recorded match: a page with the pitch, the score, every player's sensors and choices."""
    data, contents = read_replay(replay)
    if html is not None:
        write_html(html, data, contents.title, three_d=three_d)
        typer.echo(f"Wrote {html} ({html.stat().st_size / 1000:.0f} kB); open it in any browser.")
        return
    with make_server(page_html(data, contents.title, three_d=three_d), port) as server:
        address = f"http://{ADDRESS}:{server.server_port}/"
        typer.echo(f"{contents.title}\nWatch at {address} (Ctrl-C ends)")
        if browser:
            webbrowser.open(address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("Ended.")
