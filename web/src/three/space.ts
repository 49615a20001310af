// From the field to three.js: x stays, up is y, and the field's z runs away from the eye.
import { CanvasTexture, Mesh, MeshBasicMaterial, PlaneGeometry, SRGBColorSpace, type Object3D } from "three";
import { Camera, WORLD_HALF_X, WORLD_HALF_Z } from "../draw/camera";

/** Put something on the field, looking along its heading (degrees, clockwise from +z). */
export function place(body: Object3D, x: number, height: number, z: number, yaw = 0): void {
  body.position.set(x, height, -z);
  body.rotation.y = (-yaw * Math.PI) / 180;
}

const PEN_WIDTH = 2.2;

/** A sheet as large as the world that lies on the grass, painted with the drawings of the flat view. */
export class Sheet {
  readonly mesh: Mesh;
  /** For drawings that want to know the scale: lines are wider here, because the sheet is seen at a slant. */
  readonly pen = new Camera();
  private readonly camera = new Camera();
  private readonly context: CanvasRenderingContext2D;
  private readonly texture: CanvasTexture;
  private empty = true;

  /** scale: pixels per metre. */
  constructor(scale: number, height: number) {
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(2 * WORLD_HALF_X * scale);
    canvas.height = Math.ceil(2 * WORLD_HALF_Z * scale);
    this.context = canvas.getContext("2d")!;
    this.camera.resize(canvas.width, canvas.height, 1);
    this.pen.resize(canvas.width / PEN_WIDTH, canvas.height / PEN_WIDTH, 1);
    this.texture = new CanvasTexture(canvas);
    this.texture.colorSpace = SRGBColorSpace;
    this.mesh = flat(2 * WORLD_HALF_X, 2 * WORLD_HALF_Z, this.texture);
    this.mesh.position.y = height;
  }

  /** Start a new drawing in metres, or leave the sheet alone when there is nothing to draw. */
  paint(draw: ((context: CanvasRenderingContext2D) => void) | null): void {
    this.mesh.visible = draw !== null;
    if (draw === null && this.empty) return;
    const { context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    this.empty = draw === null;
    if (draw !== null) {
      this.camera.applyWorld(context);
      draw(context);
    }
    this.texture.needsUpdate = true;
  }
}

function flat(width: number, depth: number, texture: CanvasTexture): Mesh {
  const material = new MeshBasicMaterial({ map: texture, transparent: true, depthWrite: false });
  const mesh = new Mesh(new PlaneGeometry(width, depth), material);
  mesh.rotation.x = -Math.PI / 2;
  return mesh;
}
