// Reads a *.match file. The byte layout is specified in docs/replay-format.md.
import { NUM_AGENTS, NUM_CHANNELS, NUM_CHOICES, type Match, type MatchEvent, type Replay } from "./replay";

const MAGIC = [0x89, 0x50, 0x41, 0x4c, 0x55, 0x53, 0x0d, 0x0a];
const SCHEMA_VERSION = 1;
const PITCH = "soccer-twos/1";
const PREFIX_BYTES = 22;

/** A replay that cannot be shown; the message is meant for the person who opened it. */
export class ReplayError extends Error {}

interface MatchHeader {
  seed: string;
  names: [string, string];
  score: [number, number];
  ticks: number;
  decisions: number;
  has_probabilities: boolean;
  frame_bytes: number;
  events: [number, "goal" | "kick", 0 | 1, number][];
}

interface Header {
  title: string;
  pitch: string;
  frame_hz: number;
  ticks_per_decision: number;
  position_unit_m: number;
  yaw_unit_degrees: number;
  matches: MatchHeader[];
}

export async function decodeReplay(file: Uint8Array<ArrayBuffer>): Promise<Replay> {
  if (file.length < PREFIX_BYTES || MAGIC.some((byte, i) => file[i] !== byte)) {
    throw new ReplayError("This is not a palus replay. Open a *.match file.");
  }
  const prefix = new DataView(file.buffer, file.byteOffset, PREFIX_BYTES);
  const version = prefix.getUint16(8, true);
  if (version < 1 || version > SCHEMA_VERSION) {
    throw new ReplayError(
      `This replay has format ${version}; this viewer reads 1 to ${SCHEMA_VERSION}. Upgrade palus.`,
    );
  }
  const headerBytes = prefix.getUint32(10, true);
  const bodyBytes = prefix.getUint32(14, true);
  if (file.length !== PREFIX_BYTES + headerBytes + bodyBytes) {
    throw new ReplayError("This replay was cut short. Copy or record it again.");
  }
  const header = parseHeader(file.subarray(PREFIX_BYTES, PREFIX_BYTES + headerBytes));
  const body = await inflate(file.subarray(PREFIX_BYTES + headerBytes));
  let offset = 0;
  const matches = header.matches.map((match) => {
    const probabilityBytes = match.has_probabilities ? NUM_AGENTS * NUM_CHOICES * match.decisions : 0;
    const end = offset + match.frame_bytes + NUM_AGENTS * match.decisions + probabilityBytes;
    const block = body.subarray(offset, end);
    if (end > body.length) throw damaged();
    offset = end;
    return decodeMatch(header, match, block);
  });
  return { title: header.title, matches };
}

function damaged(): ReplayError {
  return new ReplayError("This replay is damaged. Copy or record it again.");
}

function parseHeader(bytes: Uint8Array): Header {
  let header: Header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as Header;
  } catch {
    throw damaged();
  }
  if (header.pitch !== PITCH) {
    throw new ReplayError(`This viewer draws the pitch ${PITCH}; the replay was played on ${String(header.pitch)}.`);
  }
  if (!Array.isArray(header.matches) || header.matches.length === 0 || !header.matches.every(isMatchHeader)) {
    throw damaged();
  }
  return header;
}

function isMatchHeader(match: MatchHeader): boolean {
  const counts = [match.ticks, match.decisions, match.frame_bytes];
  return (
    counts.every((count) => Number.isInteger(count) && count >= 0) &&
    match.names.length === 2 &&
    match.names.every((name) => typeof name === "string") &&
    match.events.every(
      ([tick, , team, agent]) => tick <= match.ticks && (team === 0 || team === 1) && agent < NUM_AGENTS,
    )
  );
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw damaged();
  }
}

function decodeMatch(header: Header, match: MatchHeader, block: Uint8Array): Match {
  const columns = (start: number, count: number): Uint8Array[] =>
    Array.from({ length: count }, (_, i) =>
      block.subarray(start + i * match.decisions, start + (i + 1) * match.decisions),
    );
  const actionsStart = match.frame_bytes;
  const probabilitiesStart = actionsStart + NUM_AGENTS * match.decisions;
  const events = match.events.map(([tick, kind, team, agent]): MatchEvent => ({ tick, kind, team, agent }));
  return {
    seed: match.seed,
    names: match.names,
    score: match.score,
    ticks: match.ticks,
    frameHz: header.frame_hz,
    ticksPerDecision: header.ticks_per_decision,
    decisions: match.decisions,
    events: events.sort((a, b) => a.tick - b.tick),
    channels: decodeChannels(header, block.subarray(0, match.frame_bytes), match.ticks + 1),
    actions: columns(actionsStart, NUM_AGENTS),
    probabilities: match.has_probabilities ? columns(probabilitiesStart, NUM_AGENTS * NUM_CHOICES) : null,
  };
}

/** Varints hold the second differences of every channel in turn; two running sums give the positions back. */
function decodeChannels(header: Header, bytes: Uint8Array, frames: number): Float64Array[] {
  const channels: Float64Array[] = [];
  let offset = 0;
  for (let channel = 0; channel < NUM_CHANNELS; channel++) {
    const isYaw = channel < 3 * NUM_AGENTS && channel % 3 === 2;
    // Dividing by 1000 is exact where multiplying by 0.001 is not.
    const perUnit = Math.round(1 / (isYaw ? header.yaw_unit_degrees : header.position_unit_m));
    const values = new Float64Array(frames);
    let velocity = 0;
    let position = 0;
    for (let frame = 0; frame < frames; frame++) {
      let unsigned = 0;
      let shift = 1;
      let byte: number;
      do {
        if (offset >= bytes.length) throw damaged();
        byte = bytes[offset++];
        unsigned += (byte & 0x7f) * shift;
        shift *= 128;
      } while (byte >= 0x80);
      velocity += unsigned % 2 === 0 ? unsigned / 2 : -(unsigned + 1) / 2;
      position += velocity;
      values[frame] = position / perUnit;
    }
    channels.push(values);
  }
  return channels;
}
