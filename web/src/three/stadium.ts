// What does not move: the lawn, the boards, the goals. The lawn is the flat view's own picture.
import {
  BoxGeometry,
  CanvasTexture,
  CylinderGeometry,
  DoubleSide,
  Group,
  Mesh,
  MeshBasicMaterial,
  MeshLambertMaterial,
  PlaneGeometry,
  RepeatWrapping,
  SRGBColorSpace,
  type Material,
} from "three";
import { Camera, WORLD_HALF_X, WORLD_HALF_Z } from "../draw/camera";
import type { Palette } from "../draw/palette";
import { drawPitch } from "../draw/pitch";
import { BOXES, GOAL_BACK_X, GOAL_HALF_WIDTH, GOAL_LINE_X } from "../game/field";
import { place } from "./space";

const BOARD_HEIGHT_M = 1.1;
const GOAL_HEIGHT_M = 2.4;
const POST_RADIUS_M = 0.09;
const LAWN_PIXELS_PER_M = 48;
const MESH_M = 0.3;

/** The stadium in the colours of a palette. */
export function buildStadium(palette: Palette): Group {
  const stadium = new Group();
  stadium.add(lawn(palette), ground(), ...boards(palette));
  for (const team of [0, 1] as const) stadium.add(...goal(team, palette.teams[team].base));
  return stadium;
}

/** Free what the graphics card keeps for it. */
export function disposeStadium(stadium: Group): void {
  stadium.traverse((part) => {
    if (!(part instanceof Mesh)) return;
    part.geometry.dispose();
    const material = part.material as MeshLambertMaterial;
    material.map?.dispose();
    material.dispose();
  });
}

function lawn(palette: Palette): Mesh {
  const camera = new Camera();
  camera.resize(2 * WORLD_HALF_X, 2 * WORLD_HALF_Z, 1);
  const texture = new CanvasTexture(drawPitch(camera, palette, LAWN_PIXELS_PER_M).ground);
  texture.colorSpace = SRGBColorSpace;
  texture.anisotropy = 8;
  const material = new MeshLambertMaterial({ map: texture, transparent: true });
  const made = new Mesh(new PlaneGeometry(2 * WORLD_HALF_X, 2 * WORLD_HALF_Z), material);
  made.rotation.x = -Math.PI / 2;
  made.receiveShadow = true;
  return made;
}

function ground(): Mesh {
  const made = new Mesh(new PlaneGeometry(240, 240), new MeshLambertMaterial({ color: "#111c28" }));
  made.rotation.x = -Math.PI / 2;
  made.position.y = -0.02;
  made.receiveShadow = true;
  return made;
}

function boards(palette: Palette): Mesh[] {
  const side = new MeshLambertMaterial({ color: "#3a4a5e" });
  const made: Mesh[] = [];
  for (const box of BOXES.filter((one) => one.tag === "wall")) {
    const [sizeX, sizeZ] = [2 * box.halfX, 2 * box.halfZ];
    // A box turned about the vertical has its local x axis at (cos yaw, -sin yaw).
    const wall = new Mesh(new BoxGeometry(sizeX, BOARD_HEIGHT_M, sizeZ), side);
    place(wall, box.x, BOARD_HEIGHT_M / 2, box.z);
    wall.rotation.y = (-box.yaw * Math.PI) / 180;
    wall.castShadow = wall.receiveShadow = true;
    made.push(wall, ...lights(box.x, box.z, wall.rotation.y, sizeX, sizeZ, palette));
  }
  return made;
}

/** The lit edge on top of a board: each team's colour in its own half. */
function lights(x: number, z: number, turn: number, sizeX: number, sizeZ: number, palette: Palette): Mesh[] {
  const teams = Math.abs(x) > 1 ? [x < 0 ? 0 : 1] : [0, 1];
  return teams.map((team) => {
    const length = sizeX / teams.length;
    const strip = new Mesh(
      new BoxGeometry(length, 0.07, sizeZ),
      new MeshBasicMaterial({ color: palette.teams[team as 0 | 1].light }),
    );
    place(strip, teams.length === 1 ? x : (team - 0.5) * length, BOARD_HEIGHT_M + 0.035, z);
    strip.rotation.y = turn;
    return strip;
  });
}

function goal(team: 0 | 1, colour: string): Mesh[] {
  const side = team === 0 ? -1 : 1;
  const [front, back] = [side * GOAL_LINE_X, side * GOAL_BACK_X[team]];
  const depth = Math.abs(back - front);
  const white = new MeshLambertMaterial({ color: "#f4f7fb" });
  const tinted = new MeshLambertMaterial({ color: colour });
  const made = [-1, 1].flatMap((flip) => [
    bar(white, GOAL_HEIGHT_M, front, GOAL_HEIGHT_M / 2, flip * GOAL_HALF_WIDTH),
    bar(tinted, GOAL_HEIGHT_M, back, GOAL_HEIGHT_M / 2, flip * GOAL_HALF_WIDTH),
  ]);
  const across = 2 * GOAL_HALF_WIDTH;
  for (const [x, material] of [
    [front, white],
    [back, tinted],
  ] as const) {
    const beam = bar(material, across, x, GOAL_HEIGHT_M, 0);
    beam.rotation.x = Math.PI / 2;
    made.push(beam);
  }
  const net = (width: number, height: number): Mesh => new Mesh(new PlaneGeometry(width, height), netting(width, height));
  const rear = net(across, GOAL_HEIGHT_M);
  place(rear, back, GOAL_HEIGHT_M / 2, 0, 90);
  const roof = net(depth, across);
  place(roof, (front + back) / 2, GOAL_HEIGHT_M, 0);
  roof.rotation.x = -Math.PI / 2;
  made.push(rear, roof);
  for (const flip of [-1, 1]) {
    const cheek = net(depth, GOAL_HEIGHT_M);
    place(cheek, (front + back) / 2, GOAL_HEIGHT_M / 2, flip * GOAL_HALF_WIDTH);
    made.push(cheek);
  }
  return made;
}

function bar(material: Material, length: number, x: number, height: number, z: number): Mesh {
  const made = new Mesh(new CylinderGeometry(POST_RADIUS_M, POST_RADIUS_M, length, 12), material);
  place(made, x, height, z);
  made.castShadow = true;
  return made;
}

function netting(width: number, height: number): MeshBasicMaterial {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 64;
  const context = canvas.getContext("2d")!;
  context.strokeStyle = "rgba(235, 242, 250, 0.75)";
  context.lineWidth = 4;
  context.strokeRect(0, 0, 64, 64);
  const texture = new CanvasTexture(canvas);
  texture.wrapS = texture.wrapT = RepeatWrapping;
  texture.repeat.set(width / MESH_M, height / MESH_M);
  return new MeshBasicMaterial({ map: texture, transparent: true, side: DoubleSide, depthWrite: false });
}
