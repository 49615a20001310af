// The unmoving picture: grass, lines, boards, goals. Drawn once per size into canvases of their own.
import {
  CORNER_DISTANCE,
  CORNER_NORMAL,
  GOAL_BACK_X,
  GOAL_HALF_WIDTH,
  GOAL_LINE_X,
  SIDE_WALL_Z,
  WALL_THICKNESS,
  goalOutline,
  pitchOutline,
  type Point,
} from "../game/field";
import type { Box, Pitch, Team } from "../replay/pitch";
import { WORLD_HALF_X, WORLD_HALF_Z, type Camera } from "./camera";
import { withAlpha, type Palette } from "./palette";

const STRIPES = 16;
const GRASS = ["#2c8049", "#27733f"] as const;
const LINE_WIDTH_M = 0.11;
const LINE_COLOUR = "rgba(244, 252, 246, 0.82)";
/** Lines run this far inside the walls. */
const LINE_INSET_M = 0.34;
const NET_MESH_M = 0.34;
/** The corner boards end beside the posts, square to their length. */
const BOARD_END_X = 15.86;

/** What lies under the bodies and what lies over them. */
export interface PitchLayers {
  readonly ground: HTMLCanvasElement;
  readonly nets: HTMLCanvasElement;
}

/** scale: device pixels per metre. */
export function drawPitch(camera: Camera, pitch: Pitch, palette: Palette, scale: number): PitchLayers {
  const ground = layer(camera, scale);
  drawGoalFloors(ground, palette);
  drawGrass(ground);
  drawLines(ground);
  drawLight(ground);
  drawBoards(ground, palette);
  const nets = layer(camera, scale);
  for (const team of [0, 1] as const) drawNet(nets, team, palette);
  for (const box of pitch.scenery.barriers) drawBarrier(nets, box);
  return { ground: ground.canvas, nets: nets.canvas };
}

function layer(camera: Camera, scale: number): CanvasRenderingContext2D {
  const canvas = document.createElement("canvas");
  const [along, across] = [Math.ceil(2 * WORLD_HALF_X * scale), Math.ceil(2 * WORLD_HALF_Z * scale)];
  [canvas.width, canvas.height] = camera.portrait ? [across, along] : [along, across];
  const context = canvas.getContext("2d")!;
  camera.applyWorldLayer(context, scale);
  return context;
}

function trace(context: CanvasRenderingContext2D, points: readonly Point[]): void {
  context.beginPath();
  for (const [x, z] of points) context.lineTo(x, z);
  context.closePath();
}

function drawGrass(context: CanvasRenderingContext2D): void {
  context.save();
  trace(context, pitchOutline());
  context.clip();
  const width = (2 * GOAL_LINE_X) / STRIPES;
  for (let i = 0; i < STRIPES; i++) {
    context.fillStyle = GRASS[i % 2];
    context.fillRect(-GOAL_LINE_X + i * width, -8, width + 0.02, 16);
  }
  // A second cut across the first: broad bands, barely visible.
  for (let i = 0; i < 5; i++) {
    context.fillStyle = i % 2 === 0 ? "rgba(255, 255, 220, 0.035)" : "rgba(0, 20, 10, 0.05)";
    context.fillRect(-16, -7.6 + i * 3.04, 32, 3.04);
  }
  drawBlades(context);
  context.restore();
}

/** Fine grain, so that the grass is not a flat colour. The generator is seeded: every visit shows the same lawn. */
function drawBlades(context: CanvasRenderingContext2D): void {
  const random = randomSequence(7);
  for (let i = 0; i < 9000; i++) {
    const [x, z, length] = [(random() - 0.5) * 31, (random() - 0.5) * 15.2, 0.06 + 0.12 * random()];
    context.fillStyle = random() < 0.5 ? "rgba(190, 255, 170, 0.05)" : "rgba(0, 30, 10, 0.07)";
    context.fillRect(x, z, 0.03, length);
  }
}

function drawLines(context: CanvasRenderingContext2D): void {
  context.save();
  trace(context, pitchOutline(LINE_INSET_M));
  context.lineWidth = LINE_WIDTH_M;
  context.lineJoin = "round";
  context.strokeStyle = LINE_COLOUR;
  context.fillStyle = LINE_COLOUR;
  context.stroke();
  context.clip();
  strokePath(
    context,
    (c) => c.moveTo(0, -8),
    (c) => c.lineTo(0, 8),
  );
  strokePath(context, (c) => c.arc(0, 0, 2.6, 0, 2 * Math.PI));
  spot(context, 0, 0);
  for (const side of [-1, 1]) {
    context.strokeRect(side * GOAL_LINE_X, -5.4, side * -4.1, 10.8);
    context.strokeRect(side * GOAL_LINE_X, -3.2, side * -1.7, 6.4);
    spot(context, side * 12.6, 0);
    const facing = side > 0 ? Math.PI : 0;
    strokePath(context, (c) => c.arc(side * 12.6, 0, 2.1, facing - 0.77, facing + 0.77));
  }
  context.restore();
}

function strokePath(context: CanvasRenderingContext2D, ...parts: ((c: CanvasRenderingContext2D) => void)[]): void {
  context.beginPath();
  for (const part of parts) part(context);
  context.stroke();
}

function spot(context: CanvasRenderingContext2D, x: number, z: number): void {
  context.beginPath();
  context.arc(x, z, 0.16, 0, 2 * Math.PI);
  context.fill();
}

/** Floodlight in the middle, dusk towards the corners, and the shade that the boards throw on the grass. */
function drawLight(context: CanvasRenderingContext2D): void {
  context.save();
  trace(context, pitchOutline());
  context.clip();
  const light = context.createRadialGradient(0, 0, 1, 0, 0, 17.5);
  light.addColorStop(0, "rgba(238, 255, 214, 0.15)");
  light.addColorStop(0.45, "rgba(180, 255, 200, 0.03)");
  light.addColorStop(1, "rgba(0, 14, 16, 0.42)");
  context.fillStyle = light;
  context.fillRect(-16, -8, 32, 16);
  for (const [width, alpha] of [
    [1.3, 0.06],
    [0.8, 0.08],
    [0.4, 0.12],
  ] as const) {
    trace(context, pitchOutline());
    context.lineWidth = width;
    context.strokeStyle = `rgba(0, 12, 8, ${alpha})`;
    context.stroke();
  }
  context.restore();
}

function drawGoalFloors(context: CanvasRenderingContext2D, palette: Palette): void {
  for (const team of [0, 1] as const) {
    const side = team === 0 ? -1 : 1;
    const shade = context.createLinearGradient(side * GOAL_LINE_X, 0, side * GOAL_BACK_X[team], 0);
    shade.addColorStop(0, "#1d5a36");
    shade.addColorStop(1, "#0e2a20");
    trace(context, goalOutline(team));
    context.fillStyle = shade;
    context.fill();
    const glow = context.createLinearGradient(side * (GOAL_LINE_X - 0.2), 0, side * GOAL_BACK_X[team], 0);
    glow.addColorStop(0, withAlpha(palette.teams[team].base, 0.1));
    glow.addColorStop(1, withAlpha(palette.teams[team].base, 0.5));
    context.fillStyle = glow;
    context.fill();
  }
}

/** The boards around the pitch, as thick as the walls that the agents run into, lit in the colour of the side they enclose. */
function drawBoards(context: CanvasRenderingContext2D, palette: Palette): void {
  const inner = pitchOutline();
  const outer = pitchOutline(-WALL_THICKNESS);
  for (const flip of [1, -1]) {
    const face = boardFace(inner, outer, flip);
    trace(context, face);
    const wood = context.createLinearGradient(0, flip * SIDE_WALL_Z, 0, flip * (SIDE_WALL_Z + WALL_THICKNESS));
    wood.addColorStop(0, "#3c4c60");
    wood.addColorStop(1, "#222d3b");
    context.fillStyle = wood;
    context.fill();
    const neon = context.createLinearGradient(-15, 0, 15, 0);
    neon.addColorStop(0, palette.teams[0].light);
    neon.addColorStop(0.42, withAlpha(palette.teams[0].base, 0.55));
    neon.addColorStop(0.5, "rgba(255, 255, 255, 0.85)");
    neon.addColorStop(0.58, withAlpha(palette.teams[1].base, 0.55));
    neon.addColorStop(1, palette.teams[1].light);
    context.lineJoin = "round";
    for (const [width, alpha] of [
      [0.34, 0.14],
      [0.2, 0.22],
      [0.075, 1],
    ] as const) {
      context.globalAlpha = alpha;
      context.lineWidth = width;
      context.strokeStyle = neon;
      context.beginPath();
      for (const [x, z] of face.slice(0, 4)) context.lineTo(x, z);
      context.stroke();
    }
    context.globalAlpha = 1;
  }
}

/** Upper (flip 1) or lower (-1) boards from goal post to goal post: four inner points, then the outer ones back. */
function boardFace(inner: readonly Point[], outer: readonly Point[], flip: number): Point[] {
  const half = (points: readonly Point[]): Point[] => [points[7], points[0], points[1], points[2]];
  const boardEndZ = (CORNER_DISTANCE + WALL_THICKNESS - CORNER_NORMAL.x * BOARD_END_X) / CORNER_NORMAL.z;
  const back: Point[] = half(outer).map(([x, z]) =>
    Math.abs(x) > 15 ? [Math.sign(x) * BOARD_END_X, boardEndZ] : [x, z],
  );
  return [...half(inner), ...back.reverse()].map(([x, z]) => [x, flip * z]);
}

/** The net's roof as seen from above, its frame, and the posts. */
function drawNet(context: CanvasRenderingContext2D, team: Team, palette: Palette): void {
  const side = team === 0 ? -1 : 1;
  const [front, back] = [side * GOAL_LINE_X, side * GOAL_BACK_X[team]];
  context.save();
  trace(context, goalOutline(team));
  context.clip();
  context.lineWidth = 0.028;
  context.strokeStyle = "rgba(255, 255, 255, 0.34)";
  context.beginPath();
  const depth = Math.abs(back - front);
  for (let z = -GOAL_HALF_WIDTH - depth; z < GOAL_HALF_WIDTH + depth; z += NET_MESH_M) {
    context.moveTo(front, z);
    context.lineTo(back, z + depth);
    context.moveTo(front, z);
    context.lineTo(back, z - depth);
  }
  context.stroke();
  context.restore();
  context.lineJoin = "round";
  context.lineCap = "round";
  context.strokeStyle = "rgba(226, 234, 244, 0.9)";
  context.lineWidth = 0.12;
  context.beginPath();
  context.moveTo(front, GOAL_HALF_WIDTH + 0.05);
  context.lineTo(back, GOAL_HALF_WIDTH + 0.05);
  context.lineTo(back, -GOAL_HALF_WIDTH - 0.05);
  context.lineTo(front, -GOAL_HALF_WIDTH - 0.05);
  context.stroke();
  drawGoalMouth(context, front, palette.teams[team].light);
}

/** A wall on the pitch from above: of the boards' wood, with a lit edge all around. */
function drawBarrier(context: CanvasRenderingContext2D, { x, z, half_x, half_z, yaw }: Box): void {
  context.save();
  context.translate(x, z);
  context.rotate((-yaw * Math.PI) / 180);
  context.shadowColor = "rgba(0, 10, 5, 0.7)";
  context.shadowBlur = 12;
  const wood = context.createLinearGradient(-half_x, 0, half_x, 0);
  wood.addColorStop(0, "#222d3b");
  wood.addColorStop(1, "#4b5d74");
  context.fillStyle = wood;
  context.fillRect(-half_x, -half_z, 2 * half_x, 2 * half_z);
  context.shadowBlur = 0;
  context.lineWidth = 0.1;
  context.strokeStyle = "rgba(226, 234, 244, 0.85)";
  context.strokeRect(-half_x, -half_z, 2 * half_x, 2 * half_z);
  context.restore();
}

function drawGoalMouth(context: CanvasRenderingContext2D, x: number, colour: string): void {
  context.beginPath();
  context.moveTo(x, -GOAL_HALF_WIDTH);
  context.lineTo(x, GOAL_HALF_WIDTH);
  context.lineWidth = 0.3;
  context.strokeStyle = withAlpha(colour, 0.25);
  context.stroke();
  context.lineWidth = 0.12;
  context.strokeStyle = "#ffffff";
  context.stroke();
  for (const z of [-GOAL_HALF_WIDTH - 0.05, GOAL_HALF_WIDTH + 0.05]) {
    context.beginPath();
    context.arc(x, z, 0.17, 0, 2 * Math.PI);
    context.fillStyle = "#ffffff";
    context.fill();
    context.lineWidth = 0.05;
    context.strokeStyle = "rgba(10, 20, 30, 0.55)";
    context.stroke();
  }
}

/** Numbers in [0, 1), the same for the same seed (a 32-bit linear congruential generator). */
export function randomSequence(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
