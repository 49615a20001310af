// A replay ends, or jumps to the next kick-off, at the very tick of a goal, when the ball has just touched the line.
// For the eye the ball runs on into the net while play rests. Nothing else is invented, and sensors ignore it.
import { BALL_RADIUS, GOAL_BACK_X, GOAL_HALF_WIDTH } from "./field";
import { ballChannels, ballVelocityAt } from "./scene";
import type { Match } from "../replay/replay";
import type { Celebration } from "./player";

const DRAG_PER_S = 3.2;

/** Metres that the ball is moved on from its place at the goal. */
export function ballRunOn(match: Match, celebration: Celebration): { x: number; z: number } {
  const { goal, elapsed } = celebration;
  const velocity = ballVelocityAt(match, goal.tick);
  const [x, z] = ballChannels(match).map((channel) => channel[goal.tick]);
  const seconds = (1 - Math.exp(-DRAG_PER_S * elapsed)) / DRAG_PER_S;
  // Blue scores in the goal at +x, which purple defends.
  const side = goal.team === 0 ? 1 : -1;
  const back = GOAL_BACK_X[goal.team === 0 ? 1 : 0] - BALL_RADIUS;
  const along = Math.max(Math.abs(x), Math.min(back, side * (x + velocity.x * seconds)));
  const limit = GOAL_HALF_WIDTH - BALL_RADIUS;
  const across = Math.max(-limit, Math.min(limit, z + velocity.z * seconds));
  return { x: side * along - x, z: across - z };
}

/** Seconds after the goal at which the banner and the confetti are gone. */
export const BANNER_S = 2.5;
