// Calls back once per picture of the screen, with the real seconds since the last one.

/** Longer pauses between two pictures (another tab was in front) do not make play leap. */
const MAX_FRAME_S = 0.1;

/** Ends when `draw` answers false. */
export function everyFrame(draw: (seconds: number) => boolean): void {
  let lastMs: number | null = null;
  const frame = (nowMs: number): void => {
    const seconds = Math.min(MAX_FRAME_S, (nowMs - (lastMs ?? nowMs)) / 1000);
    lastMs = nowMs;
    if (draw(seconds)) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
