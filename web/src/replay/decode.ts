// Reads a *.match file. The byte layout is specified in docs/replay-format.md.
import { PITCH_NAMES, perUnit, pitchNamed, type EventKind, type Pitch } from "./pitch";
import { NUM_CHOICES, type Match, type MatchEvent, type Replay } from "./replay";

const MAGIC = [0x89, 0x50, 0x41, 0x4c, 0x55, 0x53, 0x0d, 0x0a];
const SCHEMA_VERSION = 1;
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
  events: [number, EventKind, 0 | 1, number][];
}

interface Header {
  title: string;
  pitch: string;
  frame_hz: number;
  ticks_per_decision: number;
  matches: MatchHeader[];
}

/** Beside its other fields the header holds the values of the units of the pitch's channels. */
type Units = Readonly<Record<string, number>>;

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
  const { header, pitch } = parseHeader(file.subarray(PREFIX_BYTES, PREFIX_BYTES + headerBytes));
  const agents = pitch.scenery.agents.length;
  const body = await inflate(file.subarray(PREFIX_BYTES + headerBytes));
  let offset = 0;
  const matches = header.matches.map((match) => {
    const probabilityBytes = match.has_probabilities ? agents * NUM_CHOICES * match.decisions : 0;
    const end = offset + match.frame_bytes + agents * match.decisions + probabilityBytes;
    const block = body.subarray(offset, end);
    if (end > body.length) throw damaged();
    offset = end;
    return decodeMatch(pitch, header, match, block);
  });
  return { title: header.title, pitch, matches };
}

function damaged(): ReplayError {
  return new ReplayError("This replay is damaged. Copy or record it again.");
}

function parseHeader(bytes: Uint8Array): { header: Header; pitch: Pitch } {
  let header: Header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as Header;
  } catch {
    throw damaged();
  }
  const pitch = pitchNamed(String(header.pitch));
  if (pitch === null) {
    const drawn = PITCH_NAMES.join(" and ");
    throw new ReplayError(`This viewer draws ${drawn}; the replay was played on ${String(header.pitch)}. Upgrade palus.`);
  }
  const { matches } = header;
  if (!Array.isArray(matches) || matches.length === 0 || !matches.every((match) => isMatchHeader(pitch, match))) {
    throw damaged();
  }
  return { header, pitch };
}

function isMatchHeader({ scenery }: Pitch, match: MatchHeader): boolean {
  const counts = [match.ticks, match.decisions, match.frame_bytes];
  return (
    counts.every((count) => Number.isInteger(count) && count >= 0) &&
    match.names.length === 2 &&
    match.names.every((name) => typeof name === "string") &&
    match.events.every(
      ([tick, , team, agent]) => tick <= match.ticks && (team === 0 || team === 1) && agent < scenery.agents.length,
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

function decodeMatch(pitch: Pitch, header: Header, match: MatchHeader, block: Uint8Array): Match {
  const columns = (start: number, count: number): Uint8Array[] =>
    Array.from({ length: count }, (_, i) =>
      block.subarray(start + i * match.decisions, start + (i + 1) * match.decisions),
    );
  const actionsStart = match.frame_bytes;
  const agents = pitch.scenery.agents.length;
  const probabilitiesStart = actionsStart + agents * match.decisions;
  const events = match.events.map(([tick, kind, team, agent]): MatchEvent => ({ tick, kind, team, agent }));
  const units = header as unknown as Units;
  return {
    pitch,
    seed: match.seed,
    names: match.names,
    score: match.score,
    ticks: match.ticks,
    frameHz: header.frame_hz,
    ticksPerDecision: header.ticks_per_decision,
    decisions: match.decisions,
    events: events.sort((a, b) => a.tick - b.tick),
    channels: decodeChannels(pitch, units, block.subarray(0, match.frame_bytes), match.ticks + 1),
    actions: columns(actionsStart, agents),
    probabilities: match.has_probabilities ? columns(probabilitiesStart, agents * NUM_CHOICES) : null,
  };
}

/** Varints hold the second differences of every channel in turn; two running sums give the positions back. */
function decodeChannels(pitch: Pitch, units: Units, bytes: Uint8Array, frames: number): Float64Array[] {
  const channels: Float64Array[] = [];
  let offset = 0;
  for (let channel = 0; channel < pitch.channels.length; channel++) {
    const divisor = perUnit(pitch, channel, units);
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
      values[frame] = position / divisor;
    }
    channels.push(values);
  }
  return channels;
}
