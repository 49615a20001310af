// Records what is shown as a WebM video, with names and score above it, in real time and in the browser alone.
import { formatTime } from "./dom";
import type { View } from "./view";

const TYPES = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm"];
const FRAMES_PER_S = 60;
const BITS_PER_S = 6_000_000;
const STRIP_SHARE = 0.09;
const FONT = 'ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';

export class Film {
  private recorder: MediaRecorder | null = null;
  private readonly sheet = document.createElement("canvas");

  get running(): boolean {
    return this.recorder !== null;
  }

  /** Returns whether this browser can. source: the canvas to record, as large as it is now. */
  start(source: HTMLCanvasElement, view: View): boolean {
    const type = TYPES.find((one) => typeof MediaRecorder === "function" && MediaRecorder.isTypeSupported(one));
    if (type === undefined) return false;
    // Encoders want even sizes.
    this.sheet.width = source.width & ~1;
    this.sheet.height = Math.round(source.height * (1 + STRIP_SHARE)) & ~1;
    const recorder = new MediaRecorder(this.sheet.captureStream(FRAMES_PER_S), {
      mimeType: type,
      videoBitsPerSecond: BITS_PER_S,
    });
    const parts: Blob[] = [];
    const name = `${view.match.names.join(" vs ")}.webm`.replace(/[^\w. -]+/g, "-");
    recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
    recorder.addEventListener("stop", () => save(new Blob(parts, { type: "video/webm" }), name));
    this.recorder = recorder;
    this.draw(source, view);
    recorder.start();
    return true;
  }

  /** Finish and save the file; nothing happens when none is being made. */
  stop(): void {
    this.recorder?.stop();
    this.recorder = null;
  }

  /** Add the picture that is shown now, on whichever canvas. */
  draw(source: HTMLCanvasElement, view: View): void {
    if (this.recorder === null) return;
    const context = this.sheet.getContext("2d", { alpha: false })!;
    const { width, height } = this.sheet;
    const strip = Math.round(height - height / (1 + STRIP_SHARE));
    context.fillStyle = "#090e15";
    context.fillRect(0, 0, width, height);
    context.drawImage(source, 0, strip, width, height - strip);
    drawScore(context, view, width, strip);
  }
}

function drawScore(context: CanvasRenderingContext2D, view: View, width: number, strip: number): void {
  const size = strip * 0.46;
  const middle = width / 2;
  context.textBaseline = "middle";
  context.fillStyle = "#ffffff";
  context.textAlign = "center";
  context.font = `800 ${size * 1.2}px ${FONT}`;
  const [left, right] = view.swapped ? [1, 0] : [0, 1];
  context.fillText(`${view.score[left]} : ${view.score[right]}`, middle, strip * 0.4);
  context.font = `500 ${size * 0.6}px ${FONT}`;
  context.fillText(formatTime(view.player.time), middle, strip * 0.82);
  context.font = `700 ${size}px ${FONT}`;
  for (const [team, side] of [
    [left, -1],
    [right, 1],
  ] as const) {
    context.textAlign = side < 0 ? "right" : "left";
    context.fillStyle = view.palette.teams[team].text;
    context.fillText(view.match.names[team], middle + side * size * 3, strip * 0.5, middle - size * 4);
  }
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The download has read the address by then; the browser keeps its own copy.
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
