// What games declare of the pitches that are drawn here: `pitches.json` is written by `make web` from their layouts.
import declared from "./pitches.json";

export type Team = 0 | 1;

/** What sensors tell apart, as seen by an agent. */
export type Tag = "ball" | "own goal" | "attacked goal" | "wall" | "teammate" | "opponent";

/** What the viewer tells of; other kinds belong to pitches that it does not draw. */
export type EventKind = "goal" | "kick";

export interface Agent {
  /** Without the colour of its team. */
  readonly name: string;
  readonly team: Team;
  /** In the order of their slots in an observation. */
  readonly tags: readonly Tag[];
  /** Of each sensor the angles of its rays in degrees: 90 = straight ahead, less = to the right, right before left. */
  readonly sensors: readonly (readonly number[])[];
  /** Whatever it does; others kick while they drive forward. */
  readonly kicks_always: boolean;
}

export interface Box {
  /** Team whose net it is; null for a wall. */
  readonly goal: Team | null;
  readonly x: number;
  readonly z: number;
  readonly half_x: number;
  readonly half_z: number;
  /** Degrees about the vertical; the local x axis is (cos yaw, -sin yaw). */
  readonly yaw: number;
}

/** A frame holds (x, z, yaw) of each agent, then (x, z) of the ball: metres, x towards purple's goal, and degrees. */
export interface Pitch {
  readonly pitch: string;
  /** Name of each channel's unit, and what one of the whole numbers that are stored means. */
  readonly channels: readonly string[];
  readonly units: Readonly<Record<string, number>>;
  /** Kinds of what happens in a match. */
  readonly events: readonly EventKind[];
  readonly frame_hz: number;
  readonly ticks_per_decision: number;
  readonly scenery: {
    readonly agents: readonly Agent[];
    /** Boards and nets around the field, and what stands on it besides; rays see all of them. */
    readonly boxes: readonly Box[];
    readonly barriers: readonly Box[];
  };
}

const PITCHES = declared as unknown as Readonly<Record<string, Pitch>>;
export const PITCH_NAMES: readonly string[] = Object.keys(PITCHES);

/** null for a pitch that this viewer does not draw. */
export function pitchNamed(name: string): Pitch | null {
  return Object.hasOwn(PITCHES, name) ? PITCHES[name] : null;
}

export function teamOf(pitch: Pitch, agent: number): Team {
  return pitch.scenery.agents[agent].team;
}

/** How many of a channel's stored numbers make one: dividing by 1000 is exact where multiplying by 0.001 is not. */
export function perUnit(pitch: Pitch, channel: number, units: Readonly<Record<string, number>>): number {
  return Math.round(1 / units[pitch.channels[channel]]);
}
