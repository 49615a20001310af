// Maps the field to the canvas: size, side swap, portrait orientation, following the ball.

/** The part of the world that has something drawn on it: field, goals and boards with a margin. */
export const WORLD_HALF_X = 18.1;
export const WORLD_HALF_Z = 8.55;

const FOLLOW_ZOOM = 1.9;
const FOLLOW_TIME_S = 0.35;

export class Camera {
  /** CSS pixels. */
  width = 1;
  height = 1;
  pixelRatio = 1;
  swapped = false;
  portrait = false;
  follow = false;
  private centreX = 0;
  private centreZ = 0;
  private zoom = 1;
  private moving = false;

  resize(width: number, height: number, pixelRatio: number): void {
    this.width = width;
    this.height = height;
    this.pixelRatio = pixelRatio;
    this.portrait = height > width;
  }

  /** CSS pixels per metre. */
  get scale(): number {
    return this.fit * this.zoom;
  }

  /** CSS pixels per metre when the whole field is shown. */
  get fit(): number {
    const [along, across] = this.portrait ? [this.height, this.width] : [this.width, this.height];
    return Math.min(along / (2 * WORLD_HALF_X), across / (2 * WORLD_HALF_Z));
  }

  /** The largest scale it zooms to; drawings made for it stay crisp. */
  get targetScale(): number {
    return this.fit * (this.follow ? FOLLOW_ZOOM : 1);
  }

  /** Glide towards the ball, or back to the whole field. seconds: Infinity jumps there. */
  track(ball: { x: number; z: number }, seconds: number): void {
    const share = 1 - Math.exp(-seconds / FOLLOW_TIME_S);
    const target = this.follow ? { zoom: FOLLOW_ZOOM, ...ball } : { zoom: 1, x: 0, z: 0 };
    this.zoom += (target.zoom - this.zoom) * share;
    const [along, across] = this.portrait ? [this.height, this.width] : [this.width, this.height];
    const limitX = Math.max(0, WORLD_HALF_X - along / 2 / this.scale);
    const limitZ = Math.max(0, WORLD_HALF_Z - across / 2 / this.scale);
    const [goX, goZ] = [clamp(target.x, limitX), clamp(target.z, limitZ)];
    this.centreX = clamp(this.centreX + (goX - this.centreX) * share, limitX);
    this.centreZ = clamp(this.centreZ + (goZ - this.centreZ) * share, limitZ);
    const away = Math.hypot(this.centreX - goX, this.centreZ - goZ);
    this.moving = Math.abs(this.zoom - target.zoom) > 1e-3 || away > 1e-2;
  }

  /** Whether the latest `track` left it on its way: a picture at rest is the same for everybody who opens its link. */
  get isMoving(): boolean {
    return this.moving;
  }

  /** Drawing in metres, z up (landscape) or x up (portrait). */
  applyWorld(context: CanvasRenderingContext2D): void {
    const [xx, xy, zx, zy] = this.axes(this.scale * this.pixelRatio);
    const [e, f] = [(this.width / 2) * this.pixelRatio, (this.height / 2) * this.pixelRatio];
    context.setTransform(
      xx,
      xy,
      zx,
      zy,
      e - xx * this.centreX - zx * this.centreZ,
      f - xy * this.centreX - zy * this.centreZ,
    );
  }

  /** The same orientation around a canvas of its own that shows the whole world at `scale` device pixels per metre. */
  applyWorldLayer(context: CanvasRenderingContext2D, scale: number): void {
    const [xx, xy, zx, zy] = this.axes(scale);
    context.setTransform(xx, xy, zx, zy, context.canvas.width / 2, context.canvas.height / 2);
  }

  /** CSS pixels of a point of the field. */
  toScreen(x: number, z: number): { x: number; y: number } {
    const [xx, xy, zx, zy] = this.axes(this.scale);
    const [dx, dz] = [x - this.centreX, z - this.centreZ];
    return { x: this.width / 2 + xx * dx + zx * dz, y: this.height / 2 + xy * dx + zy * dz };
  }

  /** The field's direction that points to (right, down) on the screen; light and shadows do not turn with the field. */
  screenDirection(right: number, down: number): { x: number; z: number } {
    const [xx, xy, zx, zy] = this.axes(1);
    return { x: xx * right + xy * down, z: zx * right + zy * down };
  }

  /** Screen vectors of one metre along x and along z: (xx, xy) and (zx, zy), y down. */
  private axes(scale: number): [number, number, number, number] {
    const s = this.swapped ? -scale : scale;
    return this.portrait ? [0, -s, -s, 0] : [s, 0, 0, -s];
  }
}

function clamp(value: number, limit: number): number {
  return Math.max(-limit, Math.min(limit, value));
}
