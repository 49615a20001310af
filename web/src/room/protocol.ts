// The bytes that the demo room's socket carries, as in palus.web.live; its words are in ../api.
import { NUM_AGENTS, NUM_CHANNELS, NUM_CHOICES, type Team } from "../replay/replay";

/** Forward, right, rotate; as the game's action branches. */
export type Choice = readonly [number, number, number];

/** What one decision brought. */
export interface Step {
  readonly firstTick: number;
  /** Fixed steps played. */
  readonly played: number;
  readonly goal: Team | null;
  readonly score: readonly [number, number];
  readonly finished: boolean;
  readonly actions: Uint8Array;
  readonly probabilities: Uint8Array;
  /** Agent that kicked in each fixed step, -1 none. */
  readonly kicks: Int8Array;
  /** Metres or degrees of a channel after a fixed step counted from 0. */
  value(step: number, channel: number): number;
}

const HEAD_BYTES = 12;
const YAW_UNITS = 10;
const POSITION_UNITS = 1000;

export function decodeStep(message: ArrayBuffer): Step {
  const head = new DataView(message);
  const played = head.getUint8(1);
  const goal = head.getInt8(2);
  let at = HEAD_BYTES;
  const take = (count: number): number => {
    at += count;
    return at - count;
  };
  const actions = new Uint8Array(message, take(NUM_AGENTS), NUM_AGENTS);
  const probabilities = new Uint8Array(message, take(NUM_AGENTS * NUM_CHOICES), NUM_AGENTS * NUM_CHOICES);
  const kicks = new Int8Array(message, take(played), played);
  const frames = at;
  return {
    firstTick: head.getUint32(4, true),
    played,
    goal: goal < 0 ? null : (goal as Team),
    score: [head.getUint16(8, true), head.getUint16(10, true)],
    finished: head.getUint8(3) === 1,
    actions,
    probabilities,
    kicks,
    value(step, channel) {
      const isYaw = channel < 3 * NUM_AGENTS && channel % 3 === 2;
      const units = head.getInt16(frames + 2 * (step * NUM_CHANNELS + channel), true);
      return units / (isYaw ? YAW_UNITS : POSITION_UNITS);
    },
  };
}
