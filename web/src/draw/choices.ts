// What an agent may do next, drawn around it: six arrows in its own directions, filled as far as they are probable,
// the ones it took outlined. "No drive", "no side step" and "no turn" are what is missing from their arrows.
import { chosenChoices, decisionAt, type Pose } from "../game/scene";
import { NUM_CHOICES, type Match } from "../replay/replay";
import type { Camera } from "./camera";

const TAKEN = "#ffd75e";
const EMPTY = "rgba(4, 16, 14, 0.55)";
const FULL = "rgba(255, 255, 255, 0.92)";
const INNER_M = 1.15;
const LENGTH_M = 1.3;
const HALF_WIDTH_M = 0.26;
const TURN_RADIUS_M = 1.75;
const TURN_WIDTH_M = 0.34;
/** Degrees from the heading, clockwise, of the arrows for driving and stepping aside, by choice. */
const STRAIGHT: readonly (readonly [choice: number, degrees: number])[] = [
  [1, 0],
  [2, 180],
  [4, 90],
  [5, -90],
];
/** First and last angle of the arrows for turning. */
const TURNS: readonly (readonly [choice: number, from: number, to: number])[] = [
  [7, -20, -68],
  [8, 20, 68],
];
const LABEL_AT_LEAST = 0.05;

export interface Choices {
  readonly taken: readonly number[];
  /** NUM_CHOICES shares; null when the match does not know them. */
  readonly probabilities: readonly number[] | null;
}

export function choicesAt(match: Match, agent: number, tick: number): Choices {
  const decision = decisionAt(match, tick);
  const columns = match.probabilities?.slice(NUM_CHOICES * agent, NUM_CHOICES * (agent + 1)) ?? [];
  const probabilities = columns.map((column) => (column[decision] ?? 0) / 255);
  return {
    taken: match.decisions > 0 ? chosenChoices(match, agent, decision) : [],
    // All zero: a scripted player, or a person, in a match whose other players have probabilities.
    probabilities: probabilities.some((share) => share > 0) ? probabilities : null,
  };
}

export function drawChoices(context: CanvasRenderingContext2D, pose: Pose, choices: Choices): void {
  context.save();
  context.translate(pose.x, pose.z);
  // Yaw turns clockwise from +z; the local y axis then points ahead and x to the right.
  context.rotate((-pose.yaw * Math.PI) / 180);
  context.lineJoin = "round";
  for (const [choice, degrees] of STRAIGHT) {
    context.save();
    context.rotate((-degrees * Math.PI) / 180);
    const arrow = new Path2D();
    arrow.moveTo(-HALF_WIDTH_M, INNER_M);
    arrow.lineTo(HALF_WIDTH_M, INNER_M);
    arrow.lineTo(HALF_WIDTH_M, INNER_M + LENGTH_M - 0.4);
    arrow.lineTo(0, INNER_M + LENGTH_M);
    arrow.lineTo(-HALF_WIDTH_M, INNER_M + LENGTH_M - 0.4);
    arrow.closePath();
    fill(context, arrow, choices, choice, (share) => {
      context.fillRect(-1, INNER_M, 2, LENGTH_M * share);
    });
    context.restore();
  }
  for (const [choice, from, to] of TURNS) {
    fill(context, turnArrow(from, to), choices, choice, (share) => {
      context.fill(sector(from, from + (to - from) * share));
    });
  }
  context.restore();
}

/** Upright percentages beside the arrows, drawn in CSS pixels after the world. */
export function drawChoiceLabels(
  context: CanvasRenderingContext2D,
  camera: Camera,
  pose: Pose,
  { probabilities }: Choices,
): void {
  if (probabilities === null) return;
  context.font = `700 ${Math.max(9, camera.scale * 0.36)}px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.strokeStyle = "rgba(3, 12, 10, 0.85)";
  context.fillStyle = "#ffffff";
  const beside: (readonly [number, number, number])[] = [
    ...STRAIGHT.map(([choice, degrees]) => [choice, degrees, INNER_M + LENGTH_M + 0.35] as const),
    ...TURNS.map(([choice, from, to]) => [choice, (from + to) / 2, TURN_RADIUS_M + 0.75] as const),
  ];
  for (const [choice, degrees, radius] of beside) {
    if (probabilities[choice] < LABEL_AT_LEAST) continue;
    const angle = ((pose.yaw + degrees) * Math.PI) / 180;
    const at = camera.toScreen(pose.x + Math.sin(angle) * radius, pose.z + Math.cos(angle) * radius);
    const text = `${Math.round(100 * probabilities[choice])}%`;
    context.strokeText(text, at.x, at.y);
    context.fillText(text, at.x, at.y);
  }
}

/** An arrow, dark where it is empty; `paint` covers a share of it from its start. */
function fill(
  context: CanvasRenderingContext2D,
  arrow: Path2D,
  { taken, probabilities }: Choices,
  choice: number,
  paint: (share: number) => void,
): void {
  const isTaken = taken.includes(choice);
  context.fillStyle = EMPTY;
  context.fill(arrow);
  context.save();
  context.clip(arrow);
  context.fillStyle = isTaken ? TAKEN : FULL;
  paint(probabilities === null ? Number(isTaken) : probabilities[choice]);
  context.restore();
  context.lineWidth = isTaken ? 0.1 : 0.05;
  context.strokeStyle = isTaken ? TAKEN : "rgba(255, 255, 255, 0.6)";
  context.stroke(arrow);
}

/** A point at an angle from the heading, clockwise, in the agent's own frame. */
function polar(degrees: number, radius: number): [number, number] {
  const angle = (degrees * Math.PI) / 180;
  return [Math.sin(angle) * radius, Math.cos(angle) * radius];
}

/** Canvas angle of an angle from the heading, clockwise: the canvas turns the other way from +x. */
function canvasAngle(degrees: number): number {
  return ((90 - degrees) * Math.PI) / 180;
}

function sector(from: number, to: number): Path2D {
  const path = new Path2D();
  path.moveTo(0, 0);
  path.arc(0, 0, 3, canvasAngle(from), canvasAngle(to), to > from);
  path.closePath();
  return path;
}

/** A bent arrow from one angle to the other, its tip at the last. */
function turnArrow(from: number, to: number): Path2D {
  const path = new Path2D();
  const clockwise = to > from;
  const neck = to - Math.sign(to - from) * 14;
  const [inner, outer] = [TURN_RADIUS_M - TURN_WIDTH_M / 2, TURN_RADIUS_M + TURN_WIDTH_M / 2];
  path.arc(0, 0, outer, canvasAngle(from), canvasAngle(neck), clockwise);
  path.lineTo(...polar(neck, outer + 0.18));
  path.lineTo(...polar(to, TURN_RADIUS_M));
  path.lineTo(...polar(neck, inner - 0.18));
  path.arc(0, 0, inner, canvasAngle(neck), canvasAngle(from), !clockwise);
  path.closePath();
  return path;
}
