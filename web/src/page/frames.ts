// Calls back once per picture of the screen, with the real seconds since the last one.

/** Longer pauses between two pictures (another tab was in front) do not make play leap. */
const MAX_FRAME_S = 0.1;

/** Ends when `draw` answers false; an exception costs one picture. */
export function everyFrame(draw: (seconds: number) => boolean): void {
  let lastMs: number | null = null;
  const frame = (nowMs: number): void => {
    const seconds = Math.min(MAX_FRAME_S, (nowMs - (lastMs ?? nowMs)) / 1000);
    lastMs = nowMs;
    const next = requestAnimationFrame(frame);
    if (!draw(seconds)) cancelAnimationFrame(next);
  };
  requestAnimationFrame(frame);
}
