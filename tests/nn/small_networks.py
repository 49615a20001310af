"""Networks over small spaces, made-up observations, and what is decided for these."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from palus.config.appo import AppoNetworkSettings
from palus.nn.network import Network
from palus.trust import NOBODY, Trust
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

DOOM = BehaviorSpec("doom", (ObservationSpec("obs", (3, 72, 128), "uint8"),), ActionSpec((Discrete(5),)))
SMALL = BehaviorSpec(
    "small",
    (ObservationSpec("obs", (3, 40, 44), "uint8"), ObservationSpec("measurements", (4,))),
    ActionSpec((Discrete(3), Continuous(2))),
)
TINY = {"hidden_units": 16, "image_units": 16, "memory": {"memory_size": 8}}


def network(
    spec: BehaviorSpec = SMALL,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    critic: Any = "shared",
    trust: Trust = NOBODY,
    **settings: Any,
) -> Network:
    generator = torch.Generator().manual_seed(seed)
    return Network(spec, AppoNetworkSettings(**settings), generator, dtype, critic=critic, trust=trust)


def observations(spec: BehaviorSpec, rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        o.name: rng.integers(0, 256, (rows, *o.shape), np.uint8) if o.is_image else rng.normal(size=(rows, *o.shape))
        .astype(np.float32)
        for o in spec.observations
    }  # fmt: skip


def act(policy: Network, seen: dict[str, np.ndarray], states: torch.Tensor | None = None):
    rows = len(next(iter(seen.values())))
    states = torch.zeros(rows, policy.state_size) if states is None else states
    return policy.act({name: torch.from_numpy(x) for name, x in seen.items()}, states)
