// What an agent's ray sensors see: spheres of radius 0.5 cast over the field, reduced to two dimensions.
// Rays see the same colliders as the simulation; test vectors of the games are checked against this file.
import { teamOf, type Box, type Pitch, type Tag } from "../replay/pitch";
import type { Scene } from "./scene";

export const RAY_LENGTH_M = 20;
export const CAST_RADIUS_M = 0.5;

/** The cast sphere's centre is 0.5 m above the targets' centres: discs appear smaller than the sum of the radii. */
const BALL_DISC_M = 1.0068554;
const AGENT_DISC_M = 0.8660254;

/** What a ray met: a tag that the agent's sensors tell apart, anything else, or nothing within its length. */
export type Seen = Tag | "nothing" | "something else";

export interface Ray {
  /** Which of the agent's sensors, and the direction in it; see `Agent.sensors`. */
  readonly sensor: number;
  readonly angle: number;
  /** Unit direction on the field. */
  readonly x: number;
  readonly z: number;
  readonly seen: Seen;
  /** Its place in the observation: a tag's, the one behind for nothing, and one more for what has no tag. */
  readonly slot: number;
  /** Travel of the sphere's centre over RAY_LENGTH_M; 1 when nothing was hit. */
  readonly fraction: number;
}

/** The rays of an agent, sensor after sensor, in the order of its observation. */
export function castRays(pitch: Pitch, scene: Scene, agent: number): Ray[] {
  return pitch.scenery.agents[agent].sensors.flatMap((angles, sensor) =>
    angles.map((angle) => castRay(pitch, scene, agent, sensor, angle)),
  );
}

function castRay(pitch: Pitch, scene: Scene, agent: number, sensor: number, angle: number): Ray {
  const { boxes, barriers, agents } = pitch.scenery;
  const { tags, team } = agents[agent];
  const origin = scene.agents[agent];
  const yaw = (origin.yaw * Math.PI) / 180;
  const alpha = (angle * Math.PI) / 180;
  const x = Math.cos(alpha) * Math.cos(yaw) + Math.sin(alpha) * Math.sin(yaw);
  const z = -Math.cos(alpha) * Math.sin(yaw) + Math.sin(alpha) * Math.cos(yaw);
  let distance = RAY_LENGTH_M;
  let hit: Tag | null = null;
  const consider = (found: number, tag: Tag): void => {
    if (found < distance) {
      distance = found;
      hit = tag;
    }
  };
  const meet = (box: Box): void => {
    const tag = box.goal === null ? "wall" : box.goal === team ? "own goal" : "attacked goal";
    consider(boxDistance(box, origin.x, origin.z, x, z), tag);
  };
  boxes.forEach(meet);
  barriers.forEach(meet);
  consider(discDistance(scene.ball.x - origin.x, scene.ball.z - origin.z, BALL_DISC_M, x, z), "ball");
  scene.agents.forEach((other, i) => {
    if (i === agent) return;
    const found = discDistance(other.x - origin.x, other.z - origin.z, AGENT_DISC_M, x, z);
    consider(found, teamOf(pitch, i) === team ? "teammate" : "opponent");
  });
  const place = hit === null ? tags.length : tags.indexOf(hit);
  const slot = place < 0 ? tags.length + 1 : place;
  const seen = hit === null ? "nothing" : place < 0 ? "something else" : hit;
  return { sensor, angle, x, z, seen, slot, fraction: distance / RAY_LENGTH_M };
}

/** Distance along the unit vector (dx, dz) from the origin to a disc around (cx, cz); Infinity when missed or already inside. */
function discDistance(cx: number, cz: number, radius: number, dx: number, dz: number): number {
  const along = cx * dx + cz * dz;
  const centreSquared = cx * cx + cz * cz;
  if (centreSquared <= radius * radius || along <= 0) return Infinity;
  const halfChordSquared = radius * radius - (centreSquared - along * along);
  return halfChordSquared < 0 ? Infinity : along - Math.sqrt(halfChordSquared);
}

/**
 * Distance to a box inflated by the cast radius: a rectangle with rounded corners. Seen from outside, its first hit
 * is the nearest of two plain rectangles and four discs. A start inside or touching sees through the box.
 */
function boxDistance(box: Box, ox: number, oz: number, dx: number, dz: number): number {
  const yaw = (box.yaw * Math.PI) / 180;
  const [cos, sin] = [Math.cos(yaw), Math.sin(yaw)];
  const [wx, wz] = [ox - box.x, oz - box.z];
  const [px, pz] = [wx * cos - wz * sin, wx * sin + wz * cos];
  const [vx, vz] = [dx * cos - dz * sin, dx * sin + dz * cos];
  const gap = Math.hypot(Math.max(Math.abs(px) - box.half_x, 0), Math.max(Math.abs(pz) - box.half_z, 0));
  if (gap <= CAST_RADIUS_M) return Infinity;
  let nearest = Math.min(
    rectangleDistance(px, pz, vx, vz, box.half_x + CAST_RADIUS_M, box.half_z),
    rectangleDistance(px, pz, vx, vz, box.half_x, box.half_z + CAST_RADIUS_M),
  );
  for (const cx of [-box.half_x, box.half_x]) {
    for (const cz of [-box.half_z, box.half_z]) {
      nearest = Math.min(nearest, discDistance(cx - px, cz - pz, CAST_RADIUS_M, vx, vz));
    }
  }
  return nearest;
}

/** Entry distance into the rectangle |x| <= halfX, |z| <= halfZ by the slab method; Infinity when missed. */
function rectangleDistance(px: number, pz: number, vx: number, vz: number, halfX: number, halfZ: number): number {
  let enter = 0;
  let leave = Infinity;
  for (const [p, v, half] of [
    [px, vx, halfX],
    [pz, vz, halfZ],
  ] as const) {
    if (Math.abs(v) < 1e-12) {
      if (Math.abs(p) > half) return Infinity;
      continue;
    }
    const [a, b] = [(-half - p) / v, (half - p) / v];
    enter = Math.max(enter, Math.min(a, b));
    leave = Math.min(leave, Math.max(a, b));
  }
  return enter <= leave ? enter : Infinity;
}
