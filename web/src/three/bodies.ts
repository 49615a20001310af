// Players and ball. As in the flat view one team is round with a ring, the other square with a diamond.
import {
  BoxGeometry,
  CanvasTexture,
  ConeGeometry,
  CylinderGeometry,
  Group,
  Mesh,
  MeshPhongMaterial,
  SphereGeometry,
  Sprite,
  SpriteMaterial,
  SRGBColorSpace,
  TorusGeometry,
  type BufferGeometry,
} from "three";
import type { Palette } from "../draw/palette";
import { AGENT_RADIUS, BALL_RADIUS } from "../game/field";
import type { Team } from "../replay/pitch";

const BODY_HEIGHT_M = 1;
const SQUARE_M = 0.9;

/** A player that stands on the ground and looks along -z of three.js. */
export function buildAgent(number: number, team: Team, palette: Palette): Group {
  const { base, light, dark } = palette.teams[team];
  const body = new Group();
  const trunk =
    team === 0
      ? new CylinderGeometry(AGENT_RADIUS * 0.94, AGENT_RADIUS, BODY_HEIGHT_M, 32)
      : new BoxGeometry(SQUARE_M, BODY_HEIGHT_M, SQUARE_M);
  body.add(part(trunk, base, [0, BODY_HEIGHT_M / 2, 0]));
  const emblem = team === 0 ? new TorusGeometry(0.33, 0.06, 10, 32) : new TorusGeometry(0.36, 0.06, 4, 4);
  const crown = part(emblem, light, [0, BODY_HEIGHT_M, 0]);
  crown.rotation.x = Math.PI / 2;
  const visor = part(new ConeGeometry(0.3, 0.5, 4), "#ffffff", [0, 0.34, -AGENT_RADIUS - 0.16]);
  visor.rotation.x = -Math.PI / 2;
  visor.scale.set(1, 1, 0.5);
  body.add(crown, visor);
  for (const side of [-1, 1]) {
    body.add(part(new SphereGeometry(0.13, 16, 12), "#ffffff", [side * 0.2, 0.74, -0.43]));
    body.add(part(new SphereGeometry(0.065, 12, 8), dark, [side * 0.2, 0.74, -0.54]));
  }
  const label = new Sprite(new SpriteMaterial({ map: numberTexture(number, base), depthTest: false }));
  label.renderOrder = 1; // over the lawn, which is transparent too and would be drawn after those farther away
  label.position.y = BODY_HEIGHT_M + 0.75;
  label.scale.setScalar(0.72);
  body.add(label);
  return body;
}

export function buildBall(): Mesh {
  const material = new MeshPhongMaterial({ map: ballTexture(), shininess: 40, specular: "#555555" });
  const ball = new Mesh(new SphereGeometry(BALL_RADIUS, 48, 32), material);
  ball.castShadow = true;
  return ball;
}

function part(geometry: BufferGeometry, colour: string, [x, y, z]: readonly [number, number, number]): Mesh {
  const made = new Mesh(geometry, new MeshPhongMaterial({ color: colour, shininess: 50, specular: "#333333" }));
  made.position.set(x, y, z);
  made.castShadow = true;
  return made;
}

function numberTexture(number: number, colour: string): CanvasTexture {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 128;
  const context = canvas.getContext("2d")!;
  context.beginPath();
  context.arc(64, 64, 58, 0, 2 * Math.PI);
  context.fillStyle = "rgba(6, 12, 22, 0.82)";
  context.fill();
  context.lineWidth = 8;
  context.strokeStyle = colour;
  context.stroke();
  context.font = '800 78px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = "#ffffff";
  context.fillText(String(number), 64, 70);
  return coloured(canvas);
}

/** The classic ball: dark patches around the twelve corners of an icosahedron, painted pixel by pixel. */
function ballTexture(): CanvasTexture {
  const [width, height] = [512, 256];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(width, height);
  const centres = icosahedron();
  for (let row = 0; row < height; row++) {
    const latitude = Math.PI * (0.5 - (row + 0.5) / height);
    for (let column = 0; column < width; column++) {
      const longitude = (2 * Math.PI * (column + 0.5)) / width;
      const [x, y, z] = [
        -Math.cos(longitude) * Math.cos(latitude),
        Math.sin(latitude),
        Math.sin(longitude) * Math.cos(latitude),
      ];
      const near = centres.map((c) => c[0] * x + c[1] * y + c[2] * z).sort((a, b) => b - a);
      const isPatch = near[0] > Math.cos(0.36);
      const isSeam = near[0] - near[1] < 0.012;
      image.data.set(
        isPatch ? [27, 36, 48, 255] : isSeam ? [150, 160, 172, 255] : [247, 249, 251, 255],
        4 * (row * width + column),
      );
    }
  }
  context.putImageData(image, 0, 0);
  return coloured(canvas);
}

function icosahedron(): [number, number, number][] {
  const golden = (1 + Math.sqrt(5)) / 2;
  const length = Math.hypot(1, golden);
  const corners: [number, number, number][] = [];
  for (const a of [-1 / length, 1 / length]) {
    for (const b of [-golden / length, golden / length]) corners.push([0, a, b], [a, b, 0], [b, 0, a]);
  }
  return corners;
}

function coloured(canvas: HTMLCanvasElement): CanvasTexture {
  const texture = new CanvasTexture(canvas);
  texture.colorSpace = SRGBColorSpace;
  texture.anisotropy = 4;
  return texture;
}
