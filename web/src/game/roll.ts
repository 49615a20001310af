// The ball's orientation. Replays store only its place; rolling it along its path is what the eye expects.
import { BALL_RADIUS } from "./field";
import type { Match } from "../replay/replay";
import { ballChannels } from "./scene";

/** Unit quaternion (w, x, y, z) in the frame x along the pitch, y across it (z of the field), z towards the viewer. */
export type Quaternion = readonly [number, number, number, number];

/** Rolling at full speed would be a blur at 50 frames per second; this share of it reads better. */
const ROLL_SHARE = 0.45;

function multiply(a: Quaternion, b: Quaternion): Quaternion {
  return [
    a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
    a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
    a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
    a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
  ];
}

function normalised(q: Quaternion): Quaternion {
  const norm = Math.hypot(...q);
  return [q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm];
}

/** The turn of a ball that rolls by (dx, dz). */
function rollBy(dx: number, dz: number): Quaternion {
  const distance = Math.hypot(dx, dz);
  if (distance < 1e-9) return [1, 0, 0, 0];
  const half = (ROLL_SHARE * distance) / BALL_RADIUS / 2;
  const sin = Math.sin(half) / distance;
  return [Math.cos(half), -dz * sin, dx * sin, 0];
}

export function rotate(q: Quaternion, v: readonly [number, number, number]): [number, number, number] {
  const [w, x, y, z] = q;
  const tx = 2 * (y * v[2] - z * v[1]);
  const ty = 2 * (z * v[0] - x * v[2]);
  const tz = 2 * (x * v[1] - y * v[0]);
  return [v[0] + w * tx + y * tz - z * ty, v[1] + w * ty + z * tx - x * tz, v[2] + w * tz + x * ty - y * tx];
}

/** Orientation of the ball at every frame of a match, and between frames. */
export class BallRoll {
  private readonly orientations: Quaternion[] = [normalised([0.86, 0.3, 0.36, 0.2])];
  private readonly x: Float64Array;
  private readonly z: Float64Array;

  constructor(private readonly match: Match) {
    [this.x, this.z] = ballChannels(match);
  }

  /** extra: metres that the ball was moved on from its recorded place. */
  at(tick: number, extra = { x: 0, z: 0 }): Quaternion {
    return multiply(rollBy(extra.x, extra.z), this.recorded(tick));
  }

  private recorded(tick: number): Quaternion {
    const before = Math.max(0, Math.min(this.match.ticks, Math.floor(tick)));
    // Worked out as far as it is asked for: a match that is still being played grows.
    for (let known = this.orientations.length; known <= before; known++) {
      this.orientations.push(normalised(multiply(this.turn(known - 1, 1), this.orientations[known - 1])));
    }
    const orientation = this.orientations[before];
    return before < this.match.ticks ? multiply(this.turn(before, tick - before), orientation) : orientation;
  }

  private turn(tick: number, fraction: number): Quaternion {
    return rollBy((this.x[tick + 1] - this.x[tick]) * fraction, (this.z[tick + 1] - this.z[tick]) * fraction);
  }
}
