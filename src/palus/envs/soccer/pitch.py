"""The games on this pitch: what tells one from another (`Ground`), and the numbers that kernels read of it (`Pitch`).

A game is described by roles: how its agents move, kick and are paid, and which tags their sensors know. Source: the
serialized assets of Unity ML-Agents releases 18 to 22, example "Soccer".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from palus.envs.soccer.geometry import (
    AGENT_INVERSE_INERTIA,
    AGENT_INVERSE_MASS,
    AGENT_RADIUS,
    BALL_INVERSE_INERTIA,
    BALL_INVERSE_MASS,
    BALL_RADIUS,
    BLOCKER,
    BLUE_GOAL,
    DRIVE_SPEED,
    FREE_X,
    FREE_X_BLOCKED,
    LANES,
    PURPLE_GOAL,
    RECTANGLE_TAG,
    RECTANGLES,
    SWEPT_SHARE,
    WALL,
)
from palus.types import F32, I64, BehaviorSpec, Bool, Reflection

FRAMES = 3
"""Frames of rays that an observation stacks."""

OWN_GOAL, OTHER_GOAL, MATE, OPPONENT, BALL_TAG = "own goal", "attacked goal", "teammate", "opponent", "ball"
WALL_TAG = "wall"


def fan(per_side: int, reach_deg: int, turned_deg: int = 0) -> tuple[int, ...]:
    """Angles of a ray sensor, counter-clockwise from the agent's right: straight ahead, then right and left in turn.

    turned_deg: by how much the sensor is turned against its agent.
    """
    step = reach_deg // per_side
    return tuple(turned_deg + 90 + side * step * i for i in range(per_side + 1) for side in ((-1, 1) if i else (1,)))


@dataclass(frozen=True)
class Role:
    """One behavior. existential: what a whole match is worth, paid evenly over its fixed steps.

    tags: what sensors tell apart, in the order of their slots. sensors: angles of the rays of each.
    forward, lateral: multipliers of the drive.
    """

    behavior: str
    forward: float = 1.0
    lateral: float = 0.3
    existential: float = 0.0
    kicks_always: bool = False
    tags: tuple[str, ...] = (BALL_TAG, OWN_GOAL, OTHER_GOAL, WALL_TAG, MATE, OPPONENT)
    sensors: tuple[tuple[int, ...], ...] = (fan(5, 60), fan(1, 45, turned_deg=180))

    @property
    def angles_deg(self) -> tuple[int, ...]:
        """Of all rays, sensor after sensor."""
        return tuple(angle for sensor in self.sensors for angle in sensor)

    @property
    def frame_sizes(self) -> tuple[int, ...]:
        """Numbers per frame of each sensor: per ray a slot for every tag, one for nothing hit, one for the distance."""
        return tuple(len(sensor) * (len(self.tags) + 2) for sensor in self.sensors)

    @property
    def spec(self) -> BehaviorSpec:
        """What learners see of it."""
        sizes = tuple(FRAMES * size for size in self.frame_sizes)
        spec = BehaviorSpec.of_vectors(self.behavior, sizes, (3, 3, 3))
        rays = tuple(  # two numbers of each are not zero
            replace(o, sparse=True, rays=FRAMES * len(sensor))
            for o, sensor in zip(spec.observations, self.sensors, strict=True)
        )
        return replace(spec, observations=rays, reflection=self.reflection)

    @property
    def reflection(self) -> Reflection:
        """Left and right change places: rays, and the actions that go or turn to one side.

        A pitch, its goals and its starts are their own mirror image.
        """
        seen: list[int] = []
        for sensor, size in zip(self.sensors, self.frame_sizes, strict=True):
            slots = size // len(sensor)
            facing = [0, *(1 + (ray ^ 1) for ray in range(len(sensor) - 1))]  # as `fan` lays out right and left
            for first in range(len(seen), len(seen) + FRAMES * size, size):
                seen += [first + ray * slots + slot for ray in facing for slot in range(slots)]
        return Reflection(tuple(seen), (0, 1, 2, 3, 5, 4, 6, 8, 7))


@dataclass(frozen=True)
class Starter:
    """One agent slot: blue is team 0 and starts at -x. x, z: the middle of where it starts, metres."""

    name: str
    team: int
    role: Role
    x: float
    z: float


@dataclass(frozen=True)
class Ground:
    """One game. places: its agents, those of a role one after another. blocked: a wall closes the blue goal.

    holder: the team that cannot score and so wins a match without a goal; None: such a match is a draw.
    """

    env_id: str
    places: tuple[Starter, ...]
    blocked: bool = False
    holder: int | None = None

    @property
    def roles(self) -> tuple[Role, ...]:
        """Each once, in the order of the agents."""
        return tuple(dict.fromkeys(place.role for place in self.places))

    def agents_of(self, role: Role) -> slice:
        """Which agents have the role."""
        found = [a for a, place in enumerate(self.places) if place.role == role]
        return slice(found[0], found[-1] + 1)


PLAYER = Role("SoccerTwos")
STRIKER = Role("Striker", forward=1.3, existential=-1.0, tags=(BALL_TAG, OTHER_GOAL, WALL_TAG, MATE, OPPONENT))
GOALIE = Role(
    "Goalie",
    lateral=1.0,
    existential=1.0,
    kicks_always=True,
    tags=(BALL_TAG, OWN_GOAL, WALL_TAG, OPPONENT),
    sensors=(fan(20, 180),),
)

SOCCER_TWOS = Ground(
    "SoccerTwos",
    (
        Starter("blue A", 0, PLAYER, -8.19, 1.2),
        Starter("purple A", 1, PLAYER, 8.19, 1.2),
        Starter("blue B", 0, PLAYER, -8.19, -1.2),
        Starter("purple B", 1, PLAYER, 8.19, -1.2),
    ),
)
STRIKERS_VS_GOALIE = Ground(
    "StrikersVsGoalie",
    (
        Starter("striker A", 0, STRIKER, -8.19, 1.2),
        Starter("striker B", 0, STRIKER, -8.19, -1.2),
        Starter("goalie", 1, GOALIE, 9.0, 0.0),
    ),
    blocked=True,
    holder=1,
)
GROUNDS = {ground.env_id: ground for ground in (SOCCER_TWOS, STRIKERS_VS_GOALIE)}


class Pitch(NamedTuple):
    """The numbers of a `Ground`, compiled into its kernels. P agents, then the ball as body P; R upright boxes.

    team: [P].   radius, inverse_mass, inverse_inertia, swept_from_square: [P + 1] of bodies; the last is the square of
    the shortest displacement that is swept.   ahead, aside: [P] m/s that a fixed step of drive adds.   existential,
    kicks_always, start_x, start_z: [P].   rectangles: [R, 6], see `RECTANGLES`.   free_x: see `FREE_X`.
    blue_open: whether the blue goal can be scored in.
    ray_right, ray_forward: [fans, LANES] directions; agent a casts the fans first_fan[a] .. first_fan[a] + fans[a] - 1,
    at most max_fans, with rays[a] rays, at most max_rays.
    nothing: [P] slot of a ray without hit.   rectangle_slot, agent_slot: [P, R], [P, P] slot of what agent a hits. One
    that its sensors do not tell apart has the slot behind `nothing`, where the distance stands.
    """

    agents: int
    ball: int
    bodies: int
    team: I64
    radius: F32
    inverse_mass: F32
    inverse_inertia: F32
    swept_from_square: F32
    ahead: F32
    aside: F32
    existential: F32
    kicks_always: Bool
    start_x: F32
    start_z: F32
    rectangles: F32
    num_rectangles: int
    free_x: np.float32
    blue_open: bool
    max_fans: int
    max_rays: int
    first_fan: I64
    fans: I64
    rays: I64
    ray_right: F32
    ray_forward: F32
    nothing: F32
    rectangle_slot: F32
    agent_slot: F32


def pitch_of(ground: Ground) -> Pitch:
    """The numbers of a game."""
    places = ground.places
    agents = len(places)
    rectangles = np.concatenate([RECTANGLES, BLOCKER]) if ground.blocked else RECTANGLES
    tags = (*RECTANGLE_TAG, WALL)[: len(rectangles)]
    angles = {role: _fans(role) for role in ground.roles}
    first = dict(zip(angles, np.cumsum([0, *map(len, angles.values())]), strict=False))
    directions = np.radians(np.concatenate(list(angles.values())))
    radius = _bodies(agents, AGENT_RADIUS, BALL_RADIUS)

    def of_places(values: list[float]) -> F32:
        return np.array(values, np.float32)

    return Pitch(
        agents=agents,
        ball=agents,
        bodies=agents + 1,
        team=np.array([place.team for place in places], np.int64),
        radius=radius,
        inverse_mass=_bodies(agents, AGENT_INVERSE_MASS, BALL_INVERSE_MASS),
        inverse_inertia=_bodies(agents, AGENT_INVERSE_INERTIA, BALL_INVERSE_INERTIA),
        swept_from_square=(SWEPT_SHARE * radius) ** 2,
        ahead=DRIVE_SPEED * of_places([place.role.forward for place in places]),
        aside=DRIVE_SPEED * of_places([place.role.lateral for place in places]),
        existential=of_places([place.role.existential for place in places]),
        kicks_always=np.array([place.role.kicks_always for place in places], np.bool_),
        start_x=of_places([place.x for place in places]),
        start_z=of_places([place.z for place in places]),
        rectangles=rectangles,
        num_rectangles=len(rectangles),
        free_x=FREE_X_BLOCKED if ground.blocked else FREE_X,
        blue_open=not ground.blocked,
        max_fans=max(map(len, angles.values())),
        max_rays=max(len(role.angles_deg) for role in angles),
        first_fan=np.array([first[place.role] for place in places], np.int64),
        fans=np.array([len(angles[place.role]) for place in places], np.int64),
        rays=np.array([len(place.role.angles_deg) for place in places], np.int64),
        ray_right=np.cos(directions).astype(np.float32),
        ray_forward=np.sin(directions).astype(np.float32),
        nothing=of_places([len(place.role.tags) for place in places]),
        rectangle_slot=np.array([[_slot(p, _seen_rectangle(p, tag)) for tag in tags] for p in places], np.float32),
        agent_slot=np.array(
            [[_slot(p, MATE if o.team == p.team else OPPONENT) for o in places] for p in places]
        ).astype(np.float32),
    )


def _bodies(agents: int, agent: np.float32, ball: np.float32) -> F32:
    return np.array([agent] * agents + [ball], np.float32)


def _fans(role: Role) -> list[list[int]]:
    """The rays of a role in rows of LANES; idle lanes look ahead."""
    angles = role.angles_deg
    padded = [*angles, *[90] * (-len(angles) % LANES)]
    return [padded[i : i + LANES] for i in range(0, len(padded), LANES)]


def _seen_rectangle(place: Starter, tag: int) -> str:
    if tag == WALL:
        return WALL_TAG
    return OWN_GOAL if tag == (BLUE_GOAL, PURPLE_GOAL)[place.team] else OTHER_GOAL


def _slot(place: Starter, tag: str) -> int:
    tags = place.role.tags
    return tags.index(tag) if tag in tags else len(tags) + 1


class Sensor(NamedTuple):
    """One ray sensor of a role, compiled into the kernel that writes its observation.

    first_agent: of those that have it.   first_ray, rays: its share of the rays of such an agent.   tags: slots.
    """

    first_agent: int
    first_ray: int
    rays: int
    tags: int


def sensors_of(ground: Ground, role: Role) -> tuple[Sensor, ...]:
    """The sensors of a role, in the order of its observations."""
    first_agent, tags = ground.agents_of(role).start, len(role.tags)
    ends = accumulate(map(len, role.sensors))
    return tuple(
        Sensor(first_agent, end - len(rays), len(rays), tags) for rays, end in zip(role.sensors, ends, strict=True)
    )


PITCH = pitch_of(SOCCER_TWOS)
"""The game of the kernels that read it; `compile.compiled` puts another in its place."""

SENSOR = sensors_of(SOCCER_TWOS, PLAYER)[0]
"""The sensor of the kernel that reads it, likewise."""
