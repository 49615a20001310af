// The match in three dimensions: a stadium built once per palette, bodies that are moved, and two sheets on the grass
// that carry the flat view's own trails, sensors, choices and flashes.
import {
  AmbientLight,
  Color,
  DirectionalLight,
  Fog,
  HemisphereLight,
  PerspectiveCamera,
  Scene,
  WebGLRenderer,
  type Group,
} from "three";
import { choicesAt, drawChoices } from "../draw/choices";
import { drawConfetti, drawKickFlashes, drawTrails } from "../draw/effects";
import { drawMark, drawRays, drawSelection } from "../draw/sensors";
import { ballRunOn, BANNER_S } from "../game/celebration";
import { BALL_RADIUS } from "../game/field";
import { castRays } from "../game/rays";
import { sceneAt } from "../game/scene";
import type { Pitch } from "../replay/pitch";
import { buildAgent, buildBall } from "./bodies";
import type { SolidMoment, SolidView } from "./contract";
import { place, Sheet } from "./space";
import { buildStadium, dispose } from "./stadium";

const SKY = "#0b131d";
const FIELD_OF_VIEW = 40;
/** The distance of an orbit is meant for pictures this wide; narrower ones are seen from farther away. */
const ASPECT = 2.1;
/** Upright ones see the pitch along its length. */
const UPRIGHT_DISTANCE = 1.35;
const SHEET_PIXELS_PER_M = 36;

export class SolidPitch implements SolidView {
  private readonly renderer: WebGLRenderer;
  private readonly scene = new Scene();
  private readonly eye = new PerspectiveCamera(FIELD_OF_VIEW, ASPECT, 0.5, 220);
  private readonly sheet = new Sheet(SHEET_PIXELS_PER_M, 0.03);
  private readonly ball = buildBall();
  private stadium: Group | null = null;
  private agents: Group[] = [];
  private palette = "";
  private pitch: Pitch | null = null;

  constructor(canvas: HTMLCanvasElement) {
    this.renderer = new WebGLRenderer({ canvas, antialias: true });
    this.renderer.shadowMap.enabled = true;
    this.scene.background = new Color(SKY);
    this.scene.fog = new Fog(SKY, 60, 130);
    this.scene.add(new AmbientLight("#ffffff", 0.7), new HemisphereLight("#dcebff", "#2c5a3c", 1.1), sun());
    this.scene.add(this.sheet.mesh, this.ball);
  }

  resize(width: number, height: number, pixelRatio: number): void {
    this.renderer.setPixelRatio(pixelRatio);
    this.renderer.setSize(width, height, false);
    this.eye.aspect = width / height;
    this.eye.updateProjectionMatrix();
  }

  draw(moment: SolidMoment): void {
    this.dress(moment);
    this.pose(moment);
    this.paint(moment);
    this.look(moment);
    this.renderer.render(this.scene, this.eye);
  }

  close(): void {
    this.renderer.dispose();
    this.renderer.forceContextLoss();
  }

  private dress({ match: { pitch }, palette }: SolidMoment): void {
    if (this.palette === palette.id && this.pitch === pitch) return;
    this.palette = palette.id;
    this.pitch = pitch;
    for (const old of [this.stadium, ...this.agents]) {
      if (old === null) continue;
      this.scene.remove(old);
      dispose(old);
    }
    this.stadium = buildStadium(pitch, palette);
    this.agents = pitch.scenery.agents.map(({ team }, agent) => buildAgent(agent + 1, team, palette));
    this.scene.add(this.stadium, ...this.agents);
  }

  private pose(moment: SolidMoment): void {
    const { match, tick, celebration, calm } = moment;
    const scene = sceneAt(match, tick);
    const runOn = celebration && !calm ? ballRunOn(match, celebration) : { x: 0, z: 0 };
    scene.agents.forEach((pose, i) => place(this.agents[i], pose.x, 0, pose.z, pose.yaw));
    place(this.ball, scene.ball.x + runOn.x, BALL_RADIUS, scene.ball.z + runOn.z);
    const [w, x, y, z] = moment.roll.at(calm ? 0 : tick, runOn);
    this.ball.quaternion.set(x, z, -y, w);
  }

  private paint(moment: SolidMoment): void {
    const { match, tick, palette, celebration, raysOf, played, calm } = moment;
    const trails = moment.trails && !calm;
    const flashes = match.events.some((event) => event.kind === "kick" && tick >= event.tick && tick < event.tick + 20);
    const confetti = celebration !== null && !calm;
    if (!trails && !flashes && !confetti && raysOf === null && played === null) return this.sheet.paint(null);
    const { pen } = this.sheet;
    this.sheet.paint((context) => {
      if (trails) drawTrails(context, match, tick, palette);
      const scene = sceneAt(match, tick);
      if (played !== null) drawMark(context, scene.agents[played]);
      if (raysOf !== null) {
        drawRays(context, pen, scene.agents[raysOf], castRays(match.pitch, scene, raysOf));
        drawSelection(context, pen, scene.agents[raysOf]);
        drawChoices(context, scene.agents[raysOf], choicesAt(match, raysOf, tick));
      }
      drawKickFlashes(context, match, tick, palette);
      if (confetti) drawConfetti(context, celebration, palette, BANNER_S);
    });
  }

  private look({ orbit, target }: SolidMoment): void {
    const azimuth = (orbit.azimuth * Math.PI) / 180;
    const elevation = (orbit.elevation * Math.PI) / 180;
    const { aspect } = this.eye;
    const distance = orbit.distance * (aspect < 1 ? UPRIGHT_DISTANCE : Math.max(1, ASPECT / aspect));
    const level = distance * Math.cos(elevation);
    this.eye.position.set(
      target.x + level * Math.sin(azimuth),
      distance * Math.sin(elevation),
      -target.z + level * Math.cos(azimuth),
    );
    this.eye.lookAt(target.x, 0.4, -target.z);
  }
}

function sun(): DirectionalLight {
  const light = new DirectionalLight("#fff6e0", 2.4);
  light.position.set(-9, 22, 9);
  light.castShadow = true;
  light.shadow.mapSize.set(2048, 1024);
  Object.assign(light.shadow.camera, { left: -20, right: 20, top: 13, bottom: -13, near: 4, far: 50 });
  light.shadow.bias = -0.001;
  return light;
}
