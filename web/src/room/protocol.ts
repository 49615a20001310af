// The bytes that the demo room's socket carries, as in palus.web.live; its words are in ../api.
import { perUnit, type Pitch, type Team } from "../replay/pitch";
import { NUM_CHOICES, type MatchEvent } from "../replay/replay";

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
  readonly events: readonly MatchEvent[];
  /** Metres or degrees of a channel of the pitch after a fixed step counted from 0. */
  value(step: number, channel: number): number;
}

const HEAD_BYTES = 12;

export function decodeStep(message: ArrayBuffer, pitch: Pitch): Step {
  const agents = pitch.scenery.agents.length;
  const head = new DataView(message);
  const played = head.getUint8(1);
  const goal = head.getInt8(2);
  let at = HEAD_BYTES;
  const take = (count: number): number => {
    at += count;
    return at - count;
  };
  const actions = new Uint8Array(message, take(agents), agents);
  const probabilities = new Uint8Array(message, take(agents * NUM_CHOICES), agents * NUM_CHOICES);
  const firstTick = head.getUint32(4, true);
  const events = Array.from({ length: head.getUint8(take(1)) }, (): MatchEvent => {
    const event = take(4);
    return {
      tick: firstTick + head.getUint8(event),
      kind: pitch.events[head.getUint8(event + 1)],
      team: head.getUint8(event + 2) as Team,
      agent: head.getInt8(event + 3),
    };
  });
  const frames = at;
  return {
    firstTick,
    played,
    goal: goal < 0 ? null : (goal as Team),
    score: [head.getUint16(8, true), head.getUint16(10, true)],
    finished: head.getUint8(3) === 1,
    actions,
    probabilities,
    events,
    value(step, channel) {
      const units = head.getInt32(frames + 4 * (step * pitch.channels.length + channel), true);
      return units / perUnit(pitch, channel, pitch.units);
    },
  };
}
