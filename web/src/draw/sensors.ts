// An agent's rays over the pitch: a line per ray in the colour of what it hit, and the cast sphere where it came to rest.
import { CAST_RADIUS_M, RAY_LENGTH_M, type Ray } from "../game/rays";
import type { Pose } from "../game/scene";
import type { Camera } from "./camera";
import { SEEN_COLOURS, withAlpha } from "./palette";

export function drawRays(context: CanvasRenderingContext2D, camera: Camera, pose: Pose, rays: readonly Ray[]): void {
  const thin = 1.6 / camera.scale;
  drawFieldOfView(context, pose, rays);
  for (const ray of rays) {
    const colour = SEEN_COLOURS[ray.seen];
    const length = ray.fraction * RAY_LENGTH_M;
    const [x, z] = [pose.x + ray.x * length, pose.z + ray.z * length];
    const missed = ray.seen === "nothing";
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(pose.x, pose.z);
    context.lineTo(x, z);
    context.lineWidth = 2.6 * thin;
    context.strokeStyle = `rgba(2, 14, 10, ${missed ? 0.1 : 0.3})`;
    context.stroke();
    const fade = context.createLinearGradient(pose.x, pose.z, x, z);
    fade.addColorStop(0, withAlpha(colour, 0.25));
    fade.addColorStop(1, withAlpha(colour, missed ? 0.8 : 1));
    context.lineWidth = thin;
    context.strokeStyle = fade;
    context.setLineDash(missed ? [6 * thin, 5 * thin] : []);
    context.stroke();
    context.setLineDash([]);
    if (missed) continue;
    context.beginPath();
    context.arc(x, z, CAST_RADIUS_M, 0, 2 * Math.PI);
    context.fillStyle = withAlpha(colour, 0.16);
    context.fill();
    context.lineWidth = thin * 0.8;
    context.strokeStyle = withAlpha(colour, 0.7);
    context.stroke();
    context.beginPath();
    context.arc(x, z, 0.13, 0, 2 * Math.PI);
    context.fillStyle = colour;
    context.fill();
  }
}

/** The fan that the rays of the first sensor sweep, from the rightmost to the leftmost. */
function drawFieldOfView(context: CanvasRenderingContext2D, pose: Pose, rays: readonly Ray[]): void {
  const fromRight = rays.filter(({ sensor }) => sensor === 0).sort((a, b) => a.angle - b.angle);
  context.beginPath();
  context.moveTo(pose.x, pose.z);
  for (const ray of fromRight) {
    const length = ray.fraction * RAY_LENGTH_M;
    context.lineTo(pose.x + ray.x * length, pose.z + ray.z * length);
  }
  context.closePath();
  const glow = context.createRadialGradient(pose.x, pose.z, 0.5, pose.x, pose.z, 15);
  glow.addColorStop(0, "rgba(255, 255, 255, 0.2)");
  glow.addColorStop(1, "rgba(255, 255, 255, 0.02)");
  context.fillStyle = glow;
  context.fill();
}

/** Marks the agent that the reader plays: a golden ring with an arrowhead to each side. */
export function drawMark(context: CanvasRenderingContext2D, pose: Pose): void {
  context.beginPath();
  context.arc(pose.x, pose.z, 0.86, 0, 2 * Math.PI);
  context.lineWidth = 0.16;
  context.strokeStyle = "#ffd75e";
  context.stroke();
  context.fillStyle = "#ffd75e";
  for (const side of [-1, 1]) {
    context.beginPath();
    context.moveTo(pose.x + side * 1.02, pose.z);
    context.lineTo(pose.x + side * 1.42, pose.z + 0.24);
    context.lineTo(pose.x + side * 1.42, pose.z - 0.24);
    context.fill();
  }
}

/** Marks the agent whose sensors are shown. */
export function drawSelection(context: CanvasRenderingContext2D, camera: Camera, pose: Pose): void {
  context.beginPath();
  context.arc(pose.x, pose.z, 0.98, 0, 2 * Math.PI);
  context.lineWidth = 2 / camera.scale;
  context.strokeStyle = "rgba(255, 255, 255, 0.95)";
  context.setLineDash([0.42, 0.35]);
  context.stroke();
  context.setLineDash([]);
}
