// What a replay contains once decoded. The same words as palus.envs.recording.
import type { EventKind, Pitch, Team } from "./pitch";

/** Of an agent: three branches of three. */
export const NUM_CHOICES = 9;

export interface MatchEvent {
  /** Fixed steps since kick-off; frame `tick` shows the moment after it. */
  readonly tick: number;
  readonly kind: EventKind;
  /** For a goal the team that scored. */
  readonly team: Team;
  /** Who kicked, counted from 0; -1 for a goal. */
  readonly agent: number;
}

export interface Match {
  readonly pitch: Pitch;
  readonly seed: string;
  readonly names: readonly [string, string];
  readonly score: readonly [number, number];
  readonly ticks: number;
  readonly frameHz: number;
  readonly ticksPerDecision: number;
  readonly decisions: number;
  /** In the order of their ticks. */
  readonly events: readonly MatchEvent[];
  /** For each channel of the pitch ticks + 1 numbers, metres and degrees. */
  readonly channels: readonly Float64Array[];
  /** Per agent one byte per decision: 9 · forward + 3 · right + rotate. */
  readonly actions: readonly Uint8Array[];
  /** Per agent and choice one byte per decision, 255 = certain; null when not recorded. */
  readonly probabilities: readonly Uint8Array[] | null;
}

export interface Replay {
  readonly title: string;
  /** Where all of its matches were played. */
  readonly pitch: Pitch;
  readonly matches: readonly Match[];
}
