// Players and ball. Blue is round with a ring, the other team square with a diamond: the teams differ without colour.
import { AGENT_RADIUS, BALL_RADIUS } from "../game/field";
import { rotate, type Quaternion } from "../game/roll";
import type { Pose } from "../game/scene";
import type { Team } from "../replay/pitch";
import type { Camera } from "./camera";
import { withAlpha, type TeamColours } from "./palette";

/** Metres between a body and the middle of its shadow, in the screen's directions. */
const SHADOW_OFFSET = { right: 0.14, down: 0.2 };
const SQUARE_HALF_M = 0.45;
const SQUARE_CORNER_M = 0.15;

export function drawShadow(
  context: CanvasRenderingContext2D,
  camera: Camera,
  x: number,
  z: number,
  radius: number,
): void {
  const offset = camera.screenDirection(SHADOW_OFFSET.right, SHADOW_OFFSET.down);
  const [cx, cz] = [x + offset.x, z + offset.z];
  const blur = context.createRadialGradient(cx, cz, radius * 0.55, cx, cz, radius * 1.35);
  blur.addColorStop(0, "rgba(0, 10, 5, 0.5)");
  blur.addColorStop(0.5, "rgba(0, 10, 5, 0.26)");
  blur.addColorStop(1, "rgba(0, 10, 5, 0)");
  disc(context, cx, cz, radius * 1.35, blur);
}

export function drawAgent(
  context: CanvasRenderingContext2D,
  camera: Camera,
  pose: Pose,
  team: Team,
  colours: TeamColours,
): void {
  const light = camera.screenDirection(-0.2, -0.26);
  const body = context.createRadialGradient(pose.x + light.x, pose.z + light.z, 0.02, pose.x, pose.z, 0.72);
  body.addColorStop(0, colours.light);
  body.addColorStop(0.45, colours.base);
  body.addColorStop(1, colours.dark);
  context.save();
  context.translate(pose.x, pose.z);
  // Yaw turns clockwise from +z; the local y axis then points ahead.
  context.rotate((-pose.yaw * Math.PI) / 180);
  drawHeading(context, colours);
  tracePlate(context, team, AGENT_RADIUS, SQUARE_HALF_M);
  context.lineWidth = 0.09;
  context.strokeStyle = "rgba(4, 12, 24, 0.75)";
  context.stroke();
  context.restore();
  // The gradient is lit from the screen's top left, so it is filled without the turn.
  context.save();
  context.translate(pose.x, pose.z);
  context.rotate((-pose.yaw * Math.PI) / 180);
  tracePlate(context, team, AGENT_RADIUS, SQUARE_HALF_M);
  context.rotate((pose.yaw * Math.PI) / 180);
  context.translate(-pose.x, -pose.z);
  context.fillStyle = body;
  context.fill();
  context.translate(pose.x, pose.z);
  context.rotate((-pose.yaw * Math.PI) / 180);
  drawEmblem(context, team);
  context.restore();
}

function tracePlate(context: CanvasRenderingContext2D, team: Team, radius: number, half: number): void {
  context.beginPath();
  if (team === 0) context.arc(0, 0, radius, 0, 2 * Math.PI);
  else context.roundRect(-half, -half, 2 * half, 2 * half, SQUARE_CORNER_M);
}

/** A visor ahead of the body. */
function drawHeading(context: CanvasRenderingContext2D, colours: TeamColours): void {
  context.beginPath();
  context.moveTo(-0.31, 0.36);
  context.quadraticCurveTo(0, 0.46, 0.31, 0.36);
  context.lineTo(0.05, 0.83);
  context.quadraticCurveTo(0, 0.88, -0.05, 0.83);
  context.closePath();
  context.fillStyle = "#ffffff";
  context.strokeStyle = withAlpha(colours.dark, 0.9);
  context.lineWidth = 0.07;
  context.lineJoin = "round";
  context.stroke();
  context.fill();
}

function drawEmblem(context: CanvasRenderingContext2D, team: Team): void {
  context.lineWidth = 0.06;
  context.strokeStyle = "rgba(255, 255, 255, 0.92)";
  if (team === 0) {
    context.beginPath();
    context.arc(0, 0, 0.4, 0, 2 * Math.PI);
  } else {
    context.beginPath();
    for (const [x, y] of [
      [0, 0.39],
      [0.39, 0],
      [0, -0.39],
      [-0.39, 0],
    ] as const)
      context.lineTo(x, y);
    context.closePath();
  }
  context.lineJoin = "round";
  context.stroke();
  context.fillStyle = "rgba(3, 10, 24, 0.42)";
  context.fill();
}

/** Upright numbers, drawn in CSS pixels after the world. */
export function drawLabel(context: CanvasRenderingContext2D, camera: Camera, pose: Pose, text: string): void {
  const at = camera.toScreen(pose.x, pose.z);
  const size = Math.max(8, camera.scale * 0.52);
  context.font = `700 ${size}px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = "#ffffff";
  context.fillText(text, at.x, at.y + size * 0.06);
}

/** The twelve black patches of the classic ball sit at the corners of an icosahedron. */
const PATCHES: readonly (readonly [number, number, number])[] = icosahedron();
const PATCH_ANGLE = 0.36;

export function drawBall(
  context: CanvasRenderingContext2D,
  camera: Camera,
  ball: { x: number; z: number },
  orientation: Quaternion,
): void {
  const light = camera.screenDirection(-0.22, -0.28);
  context.save();
  context.translate(ball.x, ball.z);
  disc(context, 0, 0, BALL_RADIUS, "#f7f9fb");
  context.beginPath();
  context.arc(0, 0, BALL_RADIUS, 0, 2 * Math.PI);
  context.clip();
  context.fillStyle = "#1b2430";
  context.strokeStyle = "rgba(40, 52, 68, 0.5)";
  context.lineWidth = 0.035;
  const centres = PATCHES.map((patch) => rotate(orientation, patch));
  drawSeams(context, centres);
  for (const centre of centres) drawPatch(context, centre);
  const shade = context.createRadialGradient(light.x, light.z, 0.05, light.x * 0.3, light.z * 0.3, BALL_RADIUS * 1.2);
  shade.addColorStop(0, "rgba(255, 255, 255, 0.55)");
  shade.addColorStop(0.4, "rgba(255, 255, 255, 0)");
  shade.addColorStop(0.75, "rgba(10, 24, 44, 0.16)");
  shade.addColorStop(1, "rgba(6, 14, 30, 0.62)");
  disc(context, 0, 0, BALL_RADIUS, shade);
  context.restore();
}

/** A pentagon on the sphere around a unit vector, seen from above; hidden on the far side. */
function drawPatch(context: CanvasRenderingContext2D, centre: readonly [number, number, number]): void {
  if (centre[2] < -0.25) return;
  const [u, v] = tangents(centre);
  context.beginPath();
  for (let i = 0; i < 5; i++) {
    const angle = (i * 2 * Math.PI) / 5;
    const [cos, sin] = [Math.cos(PATCH_ANGLE), Math.sin(PATCH_ANGLE)];
    const point = [0, 1, 2].map(
      (axis) => centre[axis] * cos + (u[axis] * Math.cos(angle) + v[axis] * Math.sin(angle)) * sin,
    );
    // Behind the horizon a corner slides along the rim.
    const rim = point[2] < 0 ? 1 / Math.max(1e-6, Math.hypot(point[0], point[1])) : 1;
    context.lineTo(point[0] * rim * BALL_RADIUS, point[1] * rim * BALL_RADIUS);
  }
  context.closePath();
  context.fill();
}

function drawSeams(context: CanvasRenderingContext2D, centres: readonly (readonly [number, number, number])[]): void {
  context.beginPath();
  for (let i = 0; i < centres.length; i++) {
    for (let j = 0; j < i; j++) {
      const [a, b] = [centres[i], centres[j]];
      const isNeighbour = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] > 0.3;
      if (!isNeighbour || a[2] < 0 || b[2] < 0) continue;
      context.moveTo(a[0] * BALL_RADIUS, a[1] * BALL_RADIUS);
      context.lineTo(b[0] * BALL_RADIUS, b[1] * BALL_RADIUS);
    }
  }
  context.stroke();
}

/** Two unit vectors at right angles to each other and to `n`. */
function tangents(n: readonly [number, number, number]): [number[], number[]] {
  const [hx, hy, hz] = Math.abs(n[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0];
  const cross = [n[1] * hz - n[2] * hy, n[2] * hx - n[0] * hz, n[0] * hy - n[1] * hx];
  const length = Math.hypot(...cross);
  const u = cross.map((part) => part / length);
  return [u, [n[1] * u[2] - n[2] * u[1], n[2] * u[0] - n[0] * u[2], n[0] * u[1] - n[1] * u[0]]];
}

function icosahedron(): [number, number, number][] {
  const golden = (1 + Math.sqrt(5)) / 2;
  const length = Math.hypot(1, golden);
  const corners: [number, number, number][] = [];
  for (const a of [-1 / length, 1 / length]) {
    for (const b of [-golden / length, golden / length]) corners.push([0, a, b], [a, b, 0], [b, 0, a]);
  }
  return corners;
}

function disc(
  context: CanvasRenderingContext2D,
  x: number,
  z: number,
  radius: number,
  fill: string | CanvasGradient,
): void {
  context.beginPath();
  context.arc(x, z, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
}
