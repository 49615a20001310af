"""`palus pull`: a published repository into a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from palus.cli.output import stdout, typed
from palus.errors import HubError

EPILOG = """
Examples:

  # into ./MLAgents-SoccerTwos, from huggingface.co
  palus pull unity/MLAgents-SoccerTwos

  palus pull ada/striker rival --hub http://192.168.1.20:8000
  palus match results/mine rival

  palus pull ada/striker --hub folder:pool
"""


def pull(
    repo_id: Annotated[str, typer.Argument(help="The repository.", metavar="OWNER/NAME")],
    folder: Annotated[Path | None, typer.Argument(help="Where to; default the repository's name.")] = None,
    hub: Annotated[str | None, typer.Option(help="huggingface.co, http://host:port, or folder:PATH.")] = None,
    revision: Annotated[str | None, typer.Option(help="A commit or branch; default the newest.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files of a folder that is not empty.")] = False,
) -> None:
    """Fetch a model that somebody published, with everything that belongs to it."""
    from palus.hub.publish import check_id, fetch
    from palus.hub.target import HubTarget, parse_target

    target = parse_target(hub)
    _, name = check_id(target, repo_id)
    folder = folder or Path(name)
    if isinstance(target, HubTarget):
        from palus.cli.login import hub_client

        hub_client()
    fetch(repo_id, target, folder, revision=revision, force=force)
    stdout.print(f"{escape(repo_id)} is in {escape(str(folder))}.")
    is_agent = any(folder.glob("*/policy.npz")) or any(folder.glob("checkpoint_p*/*.pth"))
    if is_agent or any(folder.glob("*.onnx")):
        stdout.print(_next_step(folder, is_agent))


def _next_step(folder: Path, is_agent: bool) -> str:
    """What to type to see it play."""
    from palus.envs import arena_games
    from palus.hub.layout import read_run

    env = ""
    with suppress(HubError):  # an agent alone, without a model
        run = read_run(folder)
        is_of_arena = run.game in arena_games()
        is_agent = is_agent and (run.is_agent or not is_of_arena)  # a team would only meet itself
        env = " --env YOUR_GAME" if run.is_of_executable and not is_of_arena else ""
    if is_agent:
        return f"Let it play: palus enjoy {typed(folder)}{env}"
    return f"Play against it: palus match YOUR_MODEL {typed(folder)}{env}"
