// A match that grows while it is played, in the form that the viewer draws.
import type { Ready } from "../api";
import type { Pitch } from "../replay/pitch";
import { NUM_CHOICES, type Match, type MatchEvent } from "../replay/replay";
import type { Step } from "./protocol";

export class LiveRecord implements Match {
  readonly frameHz: number;
  readonly ticksPerDecision: number;
  readonly seed: string;
  readonly channels: Float64Array[];
  readonly actions: Uint8Array[];
  readonly probabilities: Uint8Array[];
  readonly events: MatchEvent[] = [];
  score: readonly [number, number] = [0, 0];
  ticks = 0;
  decisions = 0;

  constructor(
    readonly pitch: Pitch,
    ready: Ready,
    readonly names: readonly [string, string],
  ) {
    this.seed = String(ready.seed);
    this.frameHz = pitch.frame_hz;
    this.ticksPerDecision = pitch.ticks_per_decision;
    const ticks = Math.ceil(ready.duration_s * pitch.frame_hz);
    // A goal cuts a decision short, so there may be more of them than full ones fit.
    const columns = (count: number): Uint8Array[] => Array.from({ length: count }, () => new Uint8Array(ticks));
    const agents = pitch.scenery.agents.length;
    this.channels = pitch.channels.map(() => new Float64Array(ticks + 1));
    this.actions = columns(agents);
    this.probabilities = columns(agents * NUM_CHOICES);
    ready.kick_off.forEach((value, channel) => (this.channels[channel][0] = value));
  }

  /** Append a decision. */
  add(step: Step): void {
    for (let i = 0; i < step.played; i++) {
      this.channels.forEach((channel, c) => (channel[this.ticks + i + 1] = step.value(i, c)));
    }
    this.events.push(...step.events);
    // The viewer looks decisions up by their time.
    const first = Math.floor(this.ticks / this.ticksPerDecision);
    this.ticks += step.played;
    this.decisions = Math.ceil(this.ticks / this.ticksPerDecision);
    for (let decision = first; decision < this.decisions; decision++) {
      this.actions.forEach((column, agent) => (column[decision] = step.actions[agent]));
      this.probabilities.forEach((column, i) => (column[decision] = step.probabilities[i]));
    }
    if (step.goal !== null) this.events.push({ tick: this.ticks, kind: "goal", team: step.goal, agent: -1 });
    this.score = step.score;
  }
}
