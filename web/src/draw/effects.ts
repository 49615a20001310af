// Everything that shows time in a still picture: trails, kick flashes, confetti. All are functions of the moment shown,
// so a link or a seek reproduces them.
import { BALL_RADIUS, GOAL_LINE_X } from "../game/field";
import type { Celebration } from "../game/player";
import { ballChannels, jumpsAfter } from "../game/scene";
import type { Team } from "../replay/pitch";
import type { Match } from "../replay/replay";
import { withAlpha, type Palette } from "./palette";
import { randomSequence } from "./pitch";

const BALL_TRAIL_TICKS = 34;
const AGENT_TRAIL_TICKS = 40;
const FLASH_TICKS = 16;
const CONFETTI_PIECES = 130;

export function drawTrails(context: CanvasRenderingContext2D, match: Match, tick: number, palette: Palette): void {
  const { agents } = match.pitch.scenery;
  for (const [agent, { team }] of agents.entries()) {
    const { base, light } = palette.teams[team];
    drawTrail(context, match, tick, { body: agent, ticks: AGENT_TRAIL_TICKS, width: 0.42, colour: base, alpha: 0.5 });
    drawTrail(context, match, tick, { body: agent, ticks: AGENT_TRAIL_TICKS, width: 0.12, colour: light, alpha: 0.6 });
  }
  const kicker = lastKicker(match, tick);
  const [outer, core] =
    kicker === null ? ["#ffffff", "#ffffff"] : [palette.teams[kicker].base, palette.teams[kicker].light];
  const ball = { body: agents.length, ticks: BALL_TRAIL_TICKS };
  drawTrail(context, match, tick, { ...ball, width: 1.6 * BALL_RADIUS, colour: outer, alpha: 0.55 });
  drawTrail(context, match, tick, { ...ball, width: 0.8 * BALL_RADIUS, colour: core, alpha: 0.6 });
}

interface Trail {
  /** An agent, or the ball behind the last. */
  readonly body: number;
  readonly ticks: number;
  readonly width: number;
  readonly colour: string;
  readonly alpha: number;
}

/** A ribbon along the last ticks of a body, thinning and fading out; broken where play was set up anew. */
function drawTrail(context: CanvasRenderingContext2D, match: Match, tick: number, trail: Trail): void {
  const x = match.channels[3 * trail.body];
  const z = match.channels[3 * trail.body + 1];
  const last = Math.floor(tick);
  for (let i = last; i > Math.max(0, last - trail.ticks); i--) {
    const [near, far] = [1 - (tick - i) / trail.ticks, 1 - (tick - i + 1) / trail.ticks];
    if (far <= 0 || jumpsAfter(match, i - 1)) return;
    const length = Math.hypot(x[i] - x[i - 1], z[i] - z[i - 1]);
    if (length < 1e-4) continue;
    const [nx, nz] = [
      ((z[i] - z[i - 1]) / length) * (trail.width / 2),
      ((x[i - 1] - x[i]) / length) * (trail.width / 2),
    ];
    context.beginPath();
    context.moveTo(x[i] + nx * near, z[i] + nz * near);
    context.lineTo(x[i] - nx * near, z[i] - nz * near);
    context.lineTo(x[i - 1] - nx * far, z[i - 1] - nz * far);
    context.lineTo(x[i - 1] + nx * far, z[i - 1] + nz * far);
    context.fillStyle = withAlpha(trail.colour, trail.alpha * near ** 1.5);
    context.fill();
  }
}

function lastKicker(match: Match, tick: number): Team | null {
  let team: Team | null = null;
  for (const event of match.events) {
    if (event.tick > tick) break;
    if (event.kind === "kick") team = event.team;
    else if (event.tick < tick) team = null;
  }
  return team;
}

/** A ring and sparks where the ball was struck. */
export function drawKickFlashes(context: CanvasRenderingContext2D, match: Match, tick: number, palette: Palette): void {
  for (const event of match.events) {
    const age = (tick - event.tick) / FLASH_TICKS;
    if (event.kind !== "kick" || age < 0 || age > 1) continue;
    const [x, z] = ballChannels(match).map((channel) => channel[event.tick]);
    const colour = palette.teams[event.team].light;
    context.beginPath();
    context.arc(x, z, BALL_RADIUS + 1.15 * Math.sqrt(age), 0, 2 * Math.PI);
    context.lineWidth = 0.2 * (1 - age);
    context.strokeStyle = withAlpha(colour, 0.95 * (1 - age));
    context.stroke();
    context.lineWidth = 0.09 * (1 - age);
    context.lineCap = "round";
    context.strokeStyle = withAlpha("#ffffff", 0.9 * (1 - age));
    for (let i = 0; i < 9; i++) {
      const angle = (i * 2 * Math.PI) / 9 + event.tick;
      const [from, to] = [BALL_RADIUS + 0.25 + 0.9 * age, BALL_RADIUS + 0.5 + 1.5 * Math.sqrt(age)];
      context.beginPath();
      context.moveTo(x + Math.cos(angle) * from, z + Math.sin(angle) * from);
      context.lineTo(x + Math.cos(angle) * to, z + Math.sin(angle) * to);
      context.stroke();
    }
  }
}

/** Paper thrown from the goal that was scored in. */
export function drawConfetti(
  context: CanvasRenderingContext2D,
  celebration: Celebration,
  palette: Palette,
  seconds: number,
): void {
  const { goal, elapsed } = celebration;
  const fade = 1 - elapsed / seconds;
  if (fade <= 0) return;
  const random = randomSequence(goal.tick);
  const side = goal.team === 0 ? 1 : -1;
  const { light, base } = palette.teams[goal.team];
  const colours = [light, base, "#ffffff", "#ffe27a"];
  const travelled = (1 - Math.exp(-2.2 * elapsed)) / 2.2;
  for (let i = 0; i < CONFETTI_PIECES; i++) {
    const angle = (random() - 0.5) * 2.6;
    const speed = 4 + 22 * random();
    const sway = Math.sin(elapsed * (3 + 4 * random()) + i) * 0.25;
    const x = side * (GOAL_LINE_X + 0.8 - Math.cos(angle) * speed * travelled);
    const z = (random() - 0.5) * 5 + Math.sin(angle) * speed * travelled + sway;
    context.save();
    context.translate(x, z);
    context.rotate(i + elapsed * (random() * 10 - 5));
    context.scale(1, Math.abs(Math.cos(elapsed * (4 + 6 * random()) + i)) * 0.8 + 0.2);
    context.fillStyle = withAlpha(colours[i % colours.length], Math.min(1, 1.6 * fade));
    context.fillRect(-0.17, -0.11, 0.34, 0.22);
    context.restore();
  }
}
