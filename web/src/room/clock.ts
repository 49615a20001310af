// Which moment of a live match is shown: a little behind what has arrived, so that uneven arrival does not show.
import { CELEBRATION_S, type Celebration } from "../game/player";
import type { MatchEvent } from "../replay/replay";
import type { Clock } from "../page/view";
import type { LiveRecord } from "./record";

/** Ticks between what is shown and what has arrived, in the middle between two arrivals. */
const AIM_TICKS = 4.5;
const GAIN_PER_TICK = 0.05;
const SLOWEST = 0.85;
const FASTEST = 1.3;
/** Farther behind (the tab was in the background), it jumps. */
const JUMP_TICKS = 40;

export class LiveClock implements Clock {
  readonly speed = 1;
  tick = 0;
  celebration: Celebration | null = null;
  playing = false;
  finished = false;

  /** onGoal: called when play reaches a goal. */
  constructor(
    private readonly match: LiveRecord,
    readonly duration: number,
    private readonly onGoal: (goal: MatchEvent) => void,
  ) {}

  get time(): number {
    return this.tick / this.match.frameHz;
  }

  /** Let real time pass. ended: nothing more will arrive. */
  advance(seconds: number, ended: boolean): void {
    const { match } = this;
    if (this.celebration !== null && this.celebration.elapsed < CELEBRATION_S) {
      const elapsed = Math.min(CELEBRATION_S, this.celebration.elapsed + seconds);
      this.celebration = { goal: this.celebration.goal, elapsed };
      // The next kick-off may be here already; the server rests about as long.
      if (elapsed < CELEBRATION_S) return;
    }
    const behind = match.ticks - this.tick;
    if (behind > 0) this.celebration = null;
    const rate = Math.max(SLOWEST, Math.min(FASTEST, 1 + GAIN_PER_TICK * (behind - AIM_TICKS)));
    const from = behind > JUMP_TICKS && !ended ? match.ticks - 2 * AIM_TICKS : this.tick;
    const next = Math.min(match.ticks, from + seconds * match.frameHz * (ended ? 1 : rate));
    const goal = match.events.find((event) => event.kind === "goal" && event.tick > this.tick && event.tick <= next);
    this.tick = goal?.tick ?? next;
    if (goal) {
      this.celebration = { goal, elapsed: 0 };
      this.onGoal(goal);
    }
    this.finished = ended && this.tick >= match.ticks && goal === undefined;
  }
}
