"""Ranks on machines with networks of their own: namespaces of the kernel, a wire between them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import palus
from palus.learn.ranks import GLOO_INTERFACE
from two_machines import NAMES, two_machines

TALK = """
from palus.learn.ranks import Ranks
import os
ranks = Ranks.joined()
print(ranks.gather(os.uname().nodename), os.environ.get("GLOO_SOCKET_IFNAME"))
ranks.close()
"""


@pytest.mark.parametrize("given", [None, "wire,wire"])
def test_ranks_meet_on_the_network_though_each_machines_own_name_leads_to_itself(
    given: str | None, tmp_path: Path
) -> None:
    """given: the interfaces that somebody chose, as gloo takes them."""
    here = {**os.environ, "PYTHONPATH": str(Path(palus.__file__).parents[1])}
    told = {"MASTER_ADDR": NAMES[0], "MASTER_PORT": "29500", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    told |= {GLOO_INTERFACE: given} if given else {}
    try:
        with two_machines(tmp_path) as there, ThreadPoolExecutor(2) as pool:

            def talk(rank: int) -> str:
                own = here | told | {"RANK": str(rank), "TORCHELASTIC_RUN_ID": "cup"}
                words = [*there[rank], sys.executable, "-c", TALK]
                done = subprocess.run(words, env=own, capture_output=True, text=True, timeout=120)
                return done.stdout or done.stderr

            said = list(pool.map(talk, range(2)))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no networks of one's own here: {error}")
    assert said == [f"['m1', 'm2'] {given or 'wire'}\n"] * 2
