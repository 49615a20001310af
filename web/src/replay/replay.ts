// What a replay contains once decoded. The same words as palus.envs.recording.

export type Team = 0 | 1;

export const NUM_AGENTS = 4;
/** Channels of a frame: (x, z, yaw) of each agent, then (x, z) of the ball. */
export const NUM_CHANNELS = 3 * NUM_AGENTS + 2;
export const NUM_CHOICES = 9;

export interface MatchEvent {
  /** Fixed steps since kick-off; frame `tick` shows the moment after it. */
  readonly tick: number;
  readonly kind: "goal" | "kick";
  /** For a goal the team that scored. */
  readonly team: Team;
  /** Who kicked, 0 to 3; -1 for a goal. */
  readonly agent: number;
}

export interface Match {
  readonly seed: string;
  readonly names: readonly [string, string];
  readonly score: readonly [number, number];
  readonly ticks: number;
  readonly frameHz: number;
  readonly ticksPerDecision: number;
  readonly decisions: number;
  /** In the order of their ticks. */
  readonly events: readonly MatchEvent[];
  /** NUM_CHANNELS arrays of ticks + 1 numbers, metres and degrees. */
  readonly channels: readonly Float64Array[];
  /** Per agent one byte per decision: 9 · forward + 3 · right + rotate. */
  readonly actions: readonly Uint8Array[];
  /** Per agent and choice one byte per decision, 255 = certain; null when not recorded. */
  readonly probabilities: readonly Uint8Array[] | null;
}

export interface Replay {
  readonly title: string;
  readonly matches: readonly Match[];
}

/** Agents are stored as blue A, purple A, blue B, purple B. */
export function teamOf(agent: number): Team {
  return (agent % 2) as Team;
}
