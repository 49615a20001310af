// The field that all pitches share, seen from above, metres: x along the pitch, z across it, blue's goal at -x.
// What rays meet, and what stands on a pitch besides, its game declares (replay/pitch.ts); these are for drawing.
import type { Team } from "../replay/pitch";

export const AGENT_RADIUS = 0.5;
export const BALL_RADIUS = 0.6241719;

export const SIDE_WALL_Z = 7.508072;
/** Inner face of the corner walls: CORNER_NORMAL · (|x|, |z|) = CORNER_DISTANCE. */
export const CORNER_NORMAL = { x: 0.8660254, z: 0.5 };
export const CORNER_DISTANCE = 15.497;
export const GOAL_LINE_X = 15.5;
export const GOAL_HALF_WIDTH = 4.15;
/** |x| of the back net's inner face, per defending team; the 16 mm between them are real. */
export const GOAL_BACK_X: readonly [number, number] = [17.372623, 17.356];
export const WALL_THICKNESS = 0.4607078;

export type Point = readonly [x: number, z: number];

/** Outline of the grass between the walls, moved inwards by `inset`, clockwise from the top left; goal mouths are straight. */
export function pitchOutline(inset = 0): Point[] {
  const z = SIDE_WALL_Z - inset;
  const cornerX = (at: number) => (CORNER_DISTANCE - inset - CORNER_NORMAL.z * at) / CORNER_NORMAL.x;
  const endX = GOAL_LINE_X - Math.max(inset, 0);
  const endZ = (CORNER_DISTANCE - inset - CORNER_NORMAL.x * endX) / CORNER_NORMAL.z;
  const [a, b] = [cornerX(z), z];
  return [
    [-a, b],
    [a, b],
    [endX, endZ],
    [endX, -endZ],
    [a, -b],
    [-a, -b],
    [-endX, -endZ],
    [-endX, endZ],
  ];
}

/** Corners of a goal's floor, from the goal line to the back net. */
export function goalOutline(team: Team): Point[] {
  const side = team === 0 ? -1 : 1;
  const [front, back] = [side * GOAL_LINE_X, side * GOAL_BACK_X[team]];
  return [
    [front, GOAL_HALF_WIDTH],
    [back, GOAL_HALF_WIDTH],
    [back, -GOAL_HALF_WIDTH],
    [front, -GOAL_HALF_WIDTH],
  ];
}
