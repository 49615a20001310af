"""Executables that are scripts, and what a game says, made by hand."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from palus.unity.messages import message, packed


def executable(folder: Path, body: str, name: str = "Game") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def said(
    shape: tuple[int, ...] = (2,), numbers: tuple[float, ...] = (0.0, 1.0), name: str = "B?team=0", brain: bool = True
) -> Any:
    """A message with one agent that asks for a decision."""
    made = message()
    if brain:
        told = made.unity_output.rl_initialization_output.brain_parameters.add(brain_name=name)
        told.action_spec.num_discrete_actions = 1
        told.action_spec.discrete_branch_sizes.append(3)
    info = made.unity_output.rl_output.agentInfos[name].value.add(id=4, group_id=2, reward=0.5)
    info.observations.add(shape=shape).float_data.data = packed(numbers)
    return made
