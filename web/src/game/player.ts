// The playback clock: which moment of the match is shown. Knows nothing of drawing or of the page.
import type { Match, MatchEvent } from "../replay/replay";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8] as const;

/** Play rests this long on a goal, so that one sees it before the sides are set up again. */
export const CELEBRATION_S = 2.6;

/** A goal that is being celebrated; `elapsed` seconds of it have passed. */
export interface Celebration {
  readonly goal: MatchEvent;
  readonly elapsed: number;
}

export class Player {
  playing = false;
  speed = 1;
  celebration: Celebration | null = null;
  private seconds = 0;

  /** onGoal: called when play reaches a goal, not when the reader jumps over one. */
  constructor(
    readonly match: Match,
    private readonly onGoal: (goal: MatchEvent) => void = () => {},
  ) {}

  get time(): number {
    return this.seconds;
  }

  get duration(): number {
    return this.match.ticks / this.match.frameHz;
  }

  /** The frame shown, between two recorded ones. */
  get tick(): number {
    return Math.min(this.match.ticks, this.seconds * this.match.frameHz);
  }

  get finished(): boolean {
    const celebrated = this.celebration === null || this.celebration.elapsed >= CELEBRATION_S;
    return this.seconds >= this.duration && celebrated;
  }

  /** Let real time pass; stops by itself at the end. */
  advance(elapsedSeconds: number): void {
    if (!this.playing) return;
    if (this.celebration !== null && this.celebration.elapsed < CELEBRATION_S) {
      // Slow motion does not stretch the celebration; fast forward shortens it.
      const elapsed = this.celebration.elapsed + elapsedSeconds * Math.max(1, this.speed);
      this.celebration = { goal: this.celebration.goal, elapsed: Math.min(elapsed, CELEBRATION_S) };
    } else {
      this.celebration = null;
      this.play(elapsedSeconds * this.speed);
    }
    if (this.finished) this.playing = false;
  }

  private play(seconds: number): void {
    const next = Math.min(this.duration, this.seconds + seconds);
    const goal = this.match.events.find((event) => {
      const at = event.tick / this.match.frameHz;
      return event.kind === "goal" && at > this.seconds && at <= next;
    });
    this.seconds = goal ? goal.tick / this.match.frameHz : next;
    if (goal) {
      this.celebration = { goal, elapsed: 0 };
      this.onGoal(goal);
    }
  }

  /** Show another moment. A jump onto a goal shows its celebration standing still. */
  seek(seconds: number): void {
    this.seconds = Math.max(0, Math.min(this.duration, seconds));
    const tick = Math.round(this.seconds * this.match.frameHz);
    const goal = this.match.events.find((event) => event.kind === "goal" && event.tick === tick);
    this.celebration = goal ? { goal, elapsed: 0.6 } : null;
  }

  /** Show the goal at which the clock stands `elapsed` seconds later, as play shows it. */
  celebrate(elapsed: number): void {
    if (this.celebration === null) return;
    this.celebration = { goal: this.celebration.goal, elapsed: Math.max(0, Math.min(CELEBRATION_S, elapsed)) };
  }

  /** Move by whole frames; pauses. */
  step(frames: number): void {
    this.playing = false;
    this.seek((Math.round(this.tick) + frames) / this.match.frameHz);
  }

  /** Play from the start again when at the end. */
  toggle(): void {
    if (!this.playing && this.finished) this.seek(0);
    this.playing = !this.playing;
  }

  changeSpeed(steps: number): void {
    const at = SPEEDS.findIndex((speed) => speed === this.speed);
    this.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at + steps))];
  }
}
