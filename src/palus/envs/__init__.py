"""The games, behind one protocol (`protocol.MultiAgentEnv`), and the one way to make them by name."""

from __future__ import annotations

import difflib
from typing import Any, cast

from palus.envs.options import make_with
from palus.envs.protocol import MultiAgentEnv
from palus.errors import EnvError
from palus.trust import NOBODY, Trust, load

BUILT_IN = {
    "SoccerTwos": "palus.envs.soccer.env:SoccerTwos",
    "RescueToy": "palus.envs.toy:RescueToy",
    "DuelToy": "palus.envs.toy:DuelToy",
    "PenaltyToy": "palus.envs.toy:PenaltyToy",
    "MenuToy": "palus.envs.toy:MenuToy",
}
"""Short names; any other environment is named `module:attribute` by somebody who may.

Their options may come from anywhere: they are checked against the annotations of the factory's keywords."""

_OURS = Trust(frozenset({"palus"}))


def make(env_id: str, num_matches: int, trust: Trust = NOBODY, /, **options: Any) -> MultiAgentEnv:
    """The environment of that name with `num_matches` matches; options go to its constructor.

    env_id: a key of `BUILT_IN`, or `module:attribute` of a module that `trust` names.
    Raises EnvError when there is none, or it refuses the options; TrustError for code that is not trusted.
    """
    built_in = BUILT_IN.get(env_id)
    if built_in is None and ":" not in env_id:
        near = difflib.get_close_matches(env_id, BUILT_IN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(BUILT_IN)}, or give module:attribute"
        raise EnvError(f"unknown environment {env_id!r}; {hint}")
    try:
        factory = load(built_in or env_id, _OURS if built_in else trust, f"game {env_id}")
    except (ImportError, AttributeError, ValueError) as error:
        raise EnvError(f"environment {env_id!r} cannot be imported ({error}); check module and attribute") from error
    if built_in is not None:
        return cast(MultiAgentEnv, make_with(factory, env_id, (num_matches,), options))
    try:
        return cast(MultiAgentEnv, factory(num_matches, **options))
    except TypeError as error:
        raise EnvError(f"environment {env_id} refuses the options {sorted(options)}: {error}") from error
