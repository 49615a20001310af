// Where everything is at one moment, between two recorded frames.
import type { Match } from "../replay/replay";

export interface Pose {
  readonly x: number;
  readonly z: number;
  /** Degrees; 0 looks along +z, 90 along +x. */
  readonly yaw: number;
}

export interface Scene {
  readonly agents: readonly Pose[];
  readonly ball: { readonly x: number; readonly z: number };
}

/** Nothing moves this far in one tick (75 m/s): it was put there by a reset. */
const JUMP_M = 1.5;

/** Whether play was set up anew between frame `tick` and the next one. */
export function jumpsAfter(match: Match, tick: number): boolean {
  if (tick < 0 || tick >= match.ticks) return false;
  for (let body = 0; body <= match.pitch.scenery.agents.length; body++) {
    const x = match.channels[3 * body];
    const z = match.channels[3 * body + 1];
    if (Math.hypot(x[tick + 1] - x[tick], z[tick + 1] - z[tick]) > JUMP_M) return true;
  }
  return false;
}

/** tick: 0 to match.ticks, may lie between two frames. */
export function sceneAt(match: Match, tick: number): Scene {
  const before = Math.max(0, Math.min(match.ticks, Math.floor(tick)));
  const after = jumpsAfter(match, before) ? before : Math.min(match.ticks, before + 1);
  const fraction = tick - before;
  const value = (channel: number): number => {
    const values = match.channels[channel];
    return values[before] + (values[after] - values[before]) * fraction;
  };
  const yaw = (channel: number): number => {
    const values = match.channels[channel];
    const turn = ((values[after] - values[before] + 540) % 360) - 180;
    return values[before] + (turn < -180 ? turn + 360 : turn) * fraction;
  };
  const agents = match.pitch.scenery.agents.map(
    (_, agent): Pose => ({ x: value(3 * agent), z: value(3 * agent + 1), yaw: yaw(3 * agent + 2) }),
  );
  const ball = 3 * agents.length;
  return { agents, ball: { x: value(ball), z: value(ball + 1) } };
}

/** x and z of the ball at every frame: the last two channels. */
export function ballChannels(match: Match): readonly [Float64Array, Float64Array] {
  const first = 3 * match.pitch.scenery.agents.length;
  return [match.channels[first], match.channels[first + 1]];
}

/** m/s of the ball in the tick before the moment; zero at kick-off and right after a reset. */
export function ballVelocityAt(match: Match, tick: number): { x: number; z: number } {
  const last = Math.max(0, Math.min(match.ticks, Math.floor(tick)));
  if (last === 0 || jumpsAfter(match, last - 1)) return { x: 0, z: 0 };
  const [x, z] = ballChannels(match);
  return { x: (x[last] - x[last - 1]) * match.frameHz, z: (z[last] - z[last - 1]) * match.frameHz };
}

export function scoreAt(match: Match, tick: number): [number, number] {
  const score: [number, number] = [0, 0];
  for (const event of match.events) {
    if (event.kind === "goal" && event.tick <= tick + 1e-6) score[event.team] += 1;
  }
  return score;
}

/** The last decision taken at or before the tick. */
export function decisionAt(match: Match, tick: number): number {
  return Math.max(0, Math.min(match.decisions - 1, Math.floor((tick + 1e-6) / match.ticksPerDecision)));
}

/** What an agent did at a decision: the drive (0-2), side (3-5) and turn (6-8) among its choices. */
export function chosenChoices(match: Match, agent: number, decision: number): [number, number, number] {
  const code = match.actions[agent][decision] ?? 0;
  return [Math.floor(code / 9), 3 + (Math.floor(code / 3) % 3), 6 + (code % 3)];
}
