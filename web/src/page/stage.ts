// Where the match is drawn: a flat canvas always, a solid one (3-D) above it once the reader asked for it.
import { Camera } from "../draw/camera";
import { Renderer, type Moment } from "../draw/renderer";
import type { Pose } from "../game/scene";
import type { SolidModule, SolidView } from "../three/contract";
import { element } from "./dom";
import type { Orbit } from "./link";

export const FIRST_ORBIT: Orbit = { azimuth: 0, elevation: 48, distance: 27 };
const ELEVATION = { least: 8, most: 89 };
const DISTANCE = { least: 6, most: 60 };
const DEGREES_PER_PIXEL = 0.3;
const CLICK_SLACK_PX = 5;
const GLIDE_S = 0.3;
const TURN_S = 0.45;

interface Listeners {
  /** The eye moved: draw with the next frame. */
  onChange(): void;
  /** The canvas is new or empty: draw at once. */
  onResize(): void;
  /** The reader pressed the pitch. */
  onClick(): void;
}

export class Stage {
  readonly root = element("div", { class: "stage" });
  readonly camera = new Camera();
  /** Where the eye is; null while the flat view is shown. */
  orbit: Orbit | null = null;
  private readonly flat = canvas();
  private readonly renderer = new Renderer(this.flat, this.camera);
  private solid: { readonly canvas: HTMLCanvasElement; readonly view: SolidView } | null = null;
  private target = { x: 0, z: 0 };
  private targetMoves = false;
  private turns = false;
  private readonly observer = new ResizeObserver(() => this.fit());
  private closed = false;

  constructor(private readonly listeners: Listeners) {
    this.root.append(this.flat);
    this.flat.addEventListener("click", () => listeners.onClick());
    this.observer.observe(this.root);
  }

  /** For good: frees the 3-D view, of which a browser keeps few. */
  close(): void {
    this.closed = true;
    this.observer.disconnect();
    this.solid?.view.close();
  }

  /** Whether its middle is on the screen. */
  get inSight(): boolean {
    const { top, height } = this.root.getBoundingClientRect();
    const middle = top + height / 2;
    return middle >= 0 && middle <= window.innerHeight;
  }

  /** The canvas that is seen now. */
  get canvas(): HTMLCanvasElement {
    return this.orbit !== null && this.solid !== null ? this.solid.canvas : this.flat;
  }

  get isMoving(): boolean {
    return this.orbit === null ? this.camera.isMoving : this.targetMoves || this.turns;
  }

  /** Change to 3-D. Raises when the script cannot be had or the browser has no WebGL. */
  async showSolid(load: () => Promise<SolidModule>, orbit: Orbit): Promise<void> {
    const module = await load();
    if (this.closed) return;
    this.solid ??= this.makeSolid(module);
    this.look(orbit);
  }

  showFlat(): void {
    this.orbit = null;
    this.fit();
  }

  /** Move the eye; degrees and a factor of the distance. */
  turn(azimuth: number, elevation: number, zoom = 1): void {
    if (this.orbit === null) return;
    const { azimuth: a, elevation: e, distance } = this.orbit;
    this.look({ azimuth: a + azimuth, elevation: e + elevation, distance: distance * zoom });
  }

  /**
   * ball: where the camera goes when it follows. seconds: since the last picture; Infinity jumps.
   * behind: the body over whose shoulder the 3-D view looks; null looks from outside.
   */
  draw(moment: Moment, ball: { x: number; z: number }, seconds: number, behind: Pose | null = null): void {
    if (this.orbit !== null && this.solid !== null) {
      this.turns = false;
      if (behind !== null) this.orbit = this.turnBehind(this.orbit, behind, seconds);
      this.glide(behind ?? (this.camera.follow ? ball : { x: 0, z: 0 }), seconds);
      // As in the flat view: upright pictures see the pitch along its length, swapped ones from the other side.
      const outside = (this.camera.portrait ? -90 : 0) + (this.camera.swapped ? 180 : 0);
      const azimuth = this.orbit.azimuth + (behind === null ? outside : 0);
      this.solid.view.draw({ ...moment, orbit: { ...this.orbit, azimuth }, target: this.target });
      return;
    }
    this.camera.track(ball, seconds);
    this.renderer.draw(moment);
  }

  /** Give the canvas that is seen the size of its place. */
  fit(): void {
    const { clientWidth, clientHeight } = this.root;
    const [width, height] = [Math.max(1, clientWidth), Math.max(1, clientHeight)];
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.camera.resize(width, height, ratio);
    const shown = this.canvas;
    this.flat.hidden = shown !== this.flat;
    if (this.solid) this.solid.canvas.hidden = shown !== this.solid.canvas;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (shown.width !== across || shown.height !== down) {
      [shown.width, shown.height] = [across, down];
      if (this.solid && shown === this.solid.canvas) this.solid.view.resize(width, height, ratio);
    }
    this.listeners.onResize();
  }

  private look(orbit: Orbit): void {
    const { azimuth, elevation, distance } = orbit;
    const first = this.orbit === null;
    this.orbit = {
      azimuth: wrapped(azimuth),
      elevation: Math.max(ELEVATION.least, Math.min(ELEVATION.most, elevation)),
      distance: Math.max(DISTANCE.least, Math.min(DISTANCE.most, distance)),
    };
    if (first) this.fit();
    else this.listeners.onChange();
  }

  /** Seen from behind a body that looks along yaw, the eye is at azimuth -yaw; it gets there the shorter way. */
  private turnBehind(orbit: Orbit, behind: Pose, seconds: number): Orbit {
    const away = wrapped(-behind.yaw - orbit.azimuth);
    this.turns = Math.abs(away) > 0.05;
    return { ...orbit, azimuth: wrapped(orbit.azimuth + away * (1 - Math.exp(-seconds / TURN_S))) };
  }

  private glide(goal: { x: number; z: number }, seconds: number): void {
    const share = 1 - Math.exp(-seconds / GLIDE_S);
    const { x, z } = this.target;
    this.target = { x: x + (goal.x - x) * share, z: z + (goal.z - z) * share };
    this.targetMoves = Math.hypot(this.target.x - goal.x, this.target.z - goal.z) > 1e-2;
  }

  private makeSolid(module: SolidModule): { canvas: HTMLCanvasElement; view: SolidView } {
    const made = canvas();
    made.classList.add("solid");
    const view = module.createView(made);
    this.root.insertBefore(made, this.flat.nextSibling);
    this.letDrag(made);
    return { canvas: made, view };
  }

  /** Dragging turns the eye around the pitch; a press without dragging is a click. */
  private letDrag(made: HTMLCanvasElement): void {
    let from: PointerEvent | null = null;
    let dragged = 0;
    made.addEventListener("pointerdown", (event) => {
      from = event;
      dragged = 0;
      made.setPointerCapture(event.pointerId);
    });
    made.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const [right, down] = [event.clientX - from.clientX, event.clientY - from.clientY];
      from = event;
      dragged += Math.hypot(right, down);
      this.turn(-right * DEGREES_PER_PIXEL, down * DEGREES_PER_PIXEL);
    });
    const end = (): void => void (from = null);
    made.addEventListener("pointerup", end);
    made.addEventListener("pointercancel", end);
    made.addEventListener("click", () => {
      if (dragged < CLICK_SLACK_PX) this.listeners.onClick();
    });
  }
}

/** The same angle in [-180, 180). */
function wrapped(degrees: number): number {
  return ((((degrees + 180) % 360) + 360) % 360) - 180;
}

function canvas(): HTMLCanvasElement {
  return element("canvas", { role: "img", "aria-label": "The pitch; the event list tells what happens" });
}
