// What an agent's two ray sensors see: spheres of radius 0.5 cast over the field, reduced to two dimensions.
// Rays see the same colliders as the simulation (field.ts); test vectors of the game are checked against this file.
import { BOXES, type Box, type Tag } from "./field";
import type { Scene } from "./scene";
import { teamOf } from "../replay/replay";

export const RAY_LENGTH_M = 20;
export const CAST_RADIUS_M = 0.5;

/** The cast sphere's centre is 0.5 m above the targets' centres: discs appear smaller than the sum of the radii. */
const BALL_DISC_M = 1.0068554;
const AGENT_DISC_M = 0.8660254;

/** Degrees in the sensor's plane, 90 = straight ahead, right before left. */
const FORWARD_ANGLES = [90, 78, 102, 66, 114, 54, 126, 42, 138, 30, 150];
const REVERSE_ANGLES = [90, 45, 135];

/** Position of what was hit in the one-hot part of an observation; the order is relative to the agent's team. */
export const SLOTS = ["ball", "own goal", "attacked goal", "wall", "teammate", "opponent", "nothing"] as const;
export const NOTHING_SLOT = 6;

export interface Ray {
  readonly sensor: "forward" | "reverse";
  /** Unit direction on the field. */
  readonly x: number;
  readonly z: number;
  readonly tag: Tag | null;
  readonly slot: number;
  /** Travel of the sphere's centre over RAY_LENGTH_M; 1 when nothing was hit. */
  readonly fraction: number;
}

const TAGS_OF_BLUE: readonly Tag[] = ["ball", "blueGoal", "purpleGoal", "wall", "blueAgent", "purpleAgent"];
const TAGS_OF_PURPLE: readonly Tag[] = ["ball", "purpleGoal", "blueGoal", "wall", "purpleAgent", "blueAgent"];

/** The 11 forward and 3 reverse rays of an agent, in the order of its observation. */
export function castRays(scene: Scene, agent: number): Ray[] {
  const { yaw } = scene.agents[agent];
  return [
    ...FORWARD_ANGLES.map((angle) => castRay(scene, agent, "forward", yaw, angle)),
    ...REVERSE_ANGLES.map((angle) => castRay(scene, agent, "reverse", yaw + 180, angle)),
  ];
}

function castRay(scene: Scene, agent: number, sensor: Ray["sensor"], sensorYaw: number, angle: number): Ray {
  const yaw = (sensorYaw * Math.PI) / 180;
  const alpha = (angle * Math.PI) / 180;
  const x = Math.cos(alpha) * Math.cos(yaw) + Math.sin(alpha) * Math.sin(yaw);
  const z = -Math.cos(alpha) * Math.sin(yaw) + Math.sin(alpha) * Math.cos(yaw);
  const origin = scene.agents[agent];
  let distance = RAY_LENGTH_M;
  let tag: Tag | null = null;
  const consider = (hit: number, hitTag: Tag): void => {
    if (hit < distance) {
      distance = hit;
      tag = hitTag;
    }
  };
  for (const box of BOXES) consider(boxDistance(box, origin.x, origin.z, x, z), box.tag);
  consider(discDistance(scene.ball.x - origin.x, scene.ball.z - origin.z, BALL_DISC_M, x, z), "ball");
  scene.agents.forEach((other, i) => {
    if (i === agent) return;
    const hit = discDistance(other.x - origin.x, other.z - origin.z, AGENT_DISC_M, x, z);
    consider(hit, teamOf(i) === 0 ? "blueAgent" : "purpleAgent");
  });
  const order = teamOf(agent) === 0 ? TAGS_OF_BLUE : TAGS_OF_PURPLE;
  const slot = tag === null ? NOTHING_SLOT : order.indexOf(tag);
  return { sensor, x, z, tag, slot, fraction: distance / RAY_LENGTH_M };
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
  const gap = Math.hypot(Math.max(Math.abs(px) - box.halfX, 0), Math.max(Math.abs(pz) - box.halfZ, 0));
  if (gap <= CAST_RADIUS_M) return Infinity;
  let nearest = Math.min(
    rectangleDistance(px, pz, vx, vz, box.halfX + CAST_RADIUS_M, box.halfZ),
    rectangleDistance(px, pz, vx, vz, box.halfX, box.halfZ + CAST_RADIUS_M),
  );
  for (const cx of [-box.halfX, box.halfX]) {
    for (const cz of [-box.halfZ, box.halfZ]) {
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
