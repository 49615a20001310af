"""What an agent of a Doom environment can press: the action spaces of Sample Factory's environments, by their names.

A component is one independent choice. Index 0 of a choice presses nothing, index k its k-th button; a turning component
sets the engine's turning speed instead. The components' buttons, concatenated, are the engine's button list.
"""

from __future__ import annotations

from dataclasses import dataclass

from palus.types import F32, ActionPart, ActionSpec, Continuous, Discrete


@dataclass(frozen=True)
class Component:
    """One part of an action. buttons: engine names. scale: degrees per tic that a turn of 1.0 means."""

    part: ActionPart
    buttons: tuple[str, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class ActionLayout:
    """The components of an environment's action, in order."""

    components: tuple[Component, ...]

    @property
    def spec(self) -> ActionSpec:
        """The same for the network; one action column for each component."""
        return ActionSpec(tuple(component.part for component in self.components))

    @property
    def buttons(self) -> tuple[str, ...]:
        """The engine's button list."""
        return tuple(button for component in self.components for button in component.buttons)

    def press(self, action: F32) -> list[float]:
        """Button values of one agent's action [A]; continuous turns are clipped to their box."""
        values: list[float] = []
        for component, number in zip(self.components, action.tolist(), strict=True):
            part = component.part
            if isinstance(part, Continuous):
                values.append(min(max(number, part.low), part.high) * component.scale)
            elif part.low is not None:
                values.append(part.value(int(number)) * component.scale)
            else:
                pressed = [0.0] * len(component.buttons)
                if number >= 1:
                    pressed[int(number) - 1] = 1.0
                values += pressed
        return values


def _choice(*buttons: str) -> Component:
    return Component(Discrete(len(buttons) + 1), buttons)


def _turn(choices: int, degrees: float) -> Component:
    return Component(Discrete(choices, -degrees, degrees), ("TURN_LEFT_RIGHT_DELTA",))


_TURN = _choice("TURN_LEFT", "TURN_RIGHT")
_WALK = _choice("MOVE_FORWARD", "MOVE_BACKWARD")
_STEP = _choice("MOVE_RIGHT", "MOVE_LEFT")
_ATTACK = _choice("ATTACK")
_SPRINT = _choice("SPEED")
_WEAPONS = _choice(*(f"SELECT_WEAPON{slot}" for slot in range(1, 8)))

STRAFE_ATTACK = ActionLayout((_choice("MOVE_LEFT", "MOVE_RIGHT", "ATTACK"),))
"""Discrete 4 of doom_basic."""
TURN_OR_ATTACK = ActionLayout((_choice("TURN_LEFT", "TURN_RIGHT", "ATTACK"),))
"""Discrete 4 of doom_defend_the_center_flat_actions."""
MOVE = ActionLayout((_choice("TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD", "MOVE_BACKWARD"),))
"""Discrete 5."""
BENCHMARK = ActionLayout(
    (_choice("MOVE_FORWARD", "MOVE_BACKWARD", "MOVE_RIGHT", "MOVE_LEFT", "TURN_RIGHT", "TURN_LEFT", "ATTACK", "SPEED"),)
)
"""Discrete 9."""
TURN_ATTACK = ActionLayout((_TURN, _ATTACK))
BASIC = ActionLayout((_TURN, _WALK))
EXTENDED = ActionLayout((_TURN, _WALK, _choice("MOVE_LEFT", "MOVE_RIGHT"), _ATTACK))
DISCRETIZED_NO_WEAPON = ActionLayout((_WALK, _STEP, _ATTACK, _SPRINT, _turn(11, 10.0)))
FULL = ActionLayout((_WALK, _STEP, _WEAPONS, _ATTACK, _SPRINT, _turn(21, 12.5)))
FULL_USE = ActionLayout((_WALK, _STEP, _WEAPONS, _ATTACK, _SPRINT, _choice("USE"), _turn(21, 12.5)))
HYBRID = ActionLayout(
    (
        _WALK,
        _STEP,
        _choice("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON"),
        _ATTACK,
        _SPRINT,
        Component(Continuous(1, -1.0, 1.0), ("TURN_LEFT_RIGHT_DELTA",), scale=7.5),
    )
)
