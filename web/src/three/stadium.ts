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
  Sprite,
  SRGBColorSpace,
  type Material,
} from "three";
import { Camera, WORLD_HALF_X, WORLD_HALF_Z } from "../draw/camera";
import type { Palette } from "../draw/palette";
import { drawPitch } from "../draw/pitch";
import { GOAL_BACK_X, GOAL_HALF_WIDTH, GOAL_LINE_X, WALL_THICKNESS, pitchOutline, type Point } from "../game/field";
import type { Box, Pitch } from "../replay/pitch";
import { place } from "./space";

const BOARD_HEIGHT_M = 0.85;
const EDGE_M = 0.12;
/** Boards of two directions close the gap between their outer edges. */
const CORNER_OVERLAP = 0.5;
const GOAL_HEIGHT_M = 2.4;
const POST_RADIUS_M = 0.09;
const LAWN_PIXELS_PER_M = 48;
const MESH_M = 0.3;

/** The stadium of a pitch in the colours of a palette. */
export function buildStadium(pitch: Pitch, palette: Palette): Group {
  const stadium = new Group();
  stadium.add(lawn(pitch, palette), ground(), ...boards(palette), ...pitch.scenery.barriers.flatMap(barrier));
  for (const team of [0, 1] as const) stadium.add(...goal(team, palette.teams[team].base));
  return stadium;
}

/** Free what the graphics card keeps for the stadium or a player. */
export function dispose(whole: Group): void {
  whole.traverse((part) => {
    if (!(part instanceof Mesh || part instanceof Sprite)) return;
    part.geometry.dispose();
    const material = part.material as MeshLambertMaterial;
    material.map?.dispose();
    material.dispose();
  });
}

function lawn(pitch: Pitch, palette: Palette): Mesh {
  const camera = new Camera();
  camera.resize(2 * WORLD_HALF_X, 2 * WORLD_HALF_Z, 1);
  const texture = new CanvasTexture(drawPitch(camera, pitch, palette, LAWN_PIXELS_PER_M).ground);
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

/** Boards along the outline of the grass, goal mouths left open, with a lit edge in the colour of each half. */
function boards(palette: Palette): Mesh[] {
  const face = new MeshLambertMaterial({ color: "#3a4a5e" });
  const lit = palette.teams.map((team) => new MeshBasicMaterial({ color: team.light }));
  const outline = pitchOutline();
  return [7, 0, 1, 3, 4, 5].flatMap((from) => {
    const [start, end] = [outline[from], outline[(from + 1) % outline.length]];
    const middle: Point = [(start[0] + end[0]) / 2, (start[1] + end[1]) / 2];
    const wall = board(start, end, WALL_THICKNESS, BOARD_HEIGHT_M, face);
    wall.castShadow = wall.receiveShadow = true;
    const halves: (readonly [Point, Point, number])[] =
      Math.abs(middle[0]) > 1
        ? [[start, end, middle[0] < 0 ? 0 : 1]]
        : [
            [start, middle, start[0] < 0 ? 0 : 1],
            [middle, end, end[0] < 0 ? 0 : 1],
          ];
    const edges = halves.map(([a, b, team]) => board(a, b, EDGE_M, EDGE_M, lit[team], BOARD_HEIGHT_M));
    return [wall, ...edges];
  });
}

/** A box from one point of the field to another, to the outside of the line between them. */
function board(a: Point, b: Point, thickness: number, height: number, material: Material, above = 0): Mesh {
  const [dx, dz] = [b[0] - a[0], b[1] - a[1]];
  const length = Math.hypot(dx, dz);
  // The outline runs clockwise, so the outside is on its left.
  const [outX, outZ] = [(-dz / length) * (thickness / 2), (dx / length) * (thickness / 2)];
  const made = new Mesh(new BoxGeometry(length + CORNER_OVERLAP * thickness, height, thickness), material);
  place(made, (a[0] + b[0]) / 2 + outX, above + height / 2, (a[1] + b[1]) / 2 + outZ);
  made.rotation.y = Math.atan2(dz, dx);
  return made;
}

/** A wall that stands on the pitch, as high as a goal, with a lit top. */
function barrier({ x, z, half_x, half_z, yaw }: Box): Mesh[] {
  const box = (height: number, above: number, material: Material): Mesh => {
    const made = new Mesh(new BoxGeometry(2 * half_x, height, 2 * half_z), material);
    place(made, x, above + height / 2, z, yaw);
    made.castShadow = made.receiveShadow = true;
    return made;
  };
  return [
    box(GOAL_HEIGHT_M, 0, new MeshLambertMaterial({ color: "#3a4a5e" })),
    box(EDGE_M, GOAL_HEIGHT_M, new MeshLambertMaterial({ color: "#8fa0b3" })),
  ];
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
  const net = (width: number, height: number): Mesh =>
    new Mesh(new PlaneGeometry(width, height), netting(width, height));
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
