"""What a run computes with: a device, a path of matrix products, threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from palus.config import RunFile
from palus.learn.ranks import Ranks
from palus.nn.matmul import MatmulPath, choose_once, exact_setting, fastest_everywhere, keep_freed_memory
from palus.nn.place import Placement
from palus.rollout.plan import physical_cores, usable_cpus
from palus.run.postponed import Postponed

TORCH_THREADS = torch.get_num_threads()
"""For systems that do not tell which cores there are: as many as torch takes, of Apple's chips the fast ones."""


@dataclass(frozen=True)
class Computing:
    """threads: of every rank, one stratum of a rollout for each. measured: paths that matmul was chosen from. int8:
    whether encoders of pictures may act in int8 (`Network.act_in_int8`); not those of several ranks, which would round
    each in its own way. postponed: what is done while the device computes."""

    place: Placement
    threads: int
    matmul: MatmulPath
    measured: tuple[MatmulPath, ...]
    int8: bool
    postponed: Postponed = field(default_factory=Postponed)

    @classmethod
    def begin(cls, run: RunFile, place: Placement, saved: Mapping[str, Any] | None, ranks: Ranks) -> Computing:
        """As the run file asks, and as a saved run did, from now on in this process. Called by all ranks."""
        cores = max((physical_cores() if usable_cpus() else TORCH_THREADS) // ranks.local_size, 1)
        threads = min(ranks.gather(run.palus.threads or cores))
        torch.set_num_threads(1)  # the learner splits minibatches over its own threads, the game its matches
        keep_freed_memory()
        # A resumed run goes on with the path that it began with: another one would give other bits. So does a device.
        automatic = run.palus.matmul == "auto" and saved is not None and saved.get("device", "cpu") == place.device.type
        path = saved["matmul"] if automatic and saved else run.palus.matmul
        if ranks.size > 1 and path == "auto":  # what the slowest rank does best
            path = fastest_everywhere(ranks.gather(choose_once(path, place.device)[1]))
        matmul, measured = choose_once(path, place.device)
        exact = "medium" if all(own == "medium" for own in ranks.gather(exact_setting())) else "highest"
        matmul.activate(place.device, exact)
        int8, postponed = run.palus.acting == "auto" and ranks.size == 1, Postponed(waits=not place.compiled)
        return cls(place, threads, matmul, tuple(measured), int8, postponed)
