// Puts one moment of a match on the canvas: ground, trails, sensors, bodies, nets, effects, in this order.
import { AGENT_RADIUS, BALL_RADIUS } from "../game/field";
import { ballRunOn, BANNER_S } from "../game/celebration";
import type { Celebration } from "../game/player";
import { castRays } from "../game/rays";
import type { BallRoll } from "../game/roll";
import { sceneAt, type Scene } from "../game/scene";
import type { Pitch } from "../replay/pitch";
import type { Match } from "../replay/replay";
import { drawAgent, drawBall, drawLabel, drawShadow } from "./bodies";
import { WORLD_HALF_X, WORLD_HALF_Z, type Camera } from "./camera";
import { choicesAt, drawChoiceLabels, drawChoices } from "./choices";
import { drawConfetti, drawKickFlashes, drawTrails } from "./effects";
import type { Palette } from "./palette";
import { drawPitch, type PitchLayers } from "./pitch";
import { drawMark, drawRays, drawSelection } from "./sensors";

export interface Moment {
  readonly match: Match;
  readonly roll: BallRoll;
  readonly tick: number;
  readonly celebration: Celebration | null;
  readonly palette: Palette;
  readonly trails: boolean;
  /** Agent whose sensors are shown. */
  readonly raysOf: number | null;
  /** Agent that the reader plays. */
  readonly played: number | null;
  /** The reader asked for reduced motion: nothing moves that the match did not move. */
  readonly calm: boolean;
}

/** Larger layers cost memory for detail that nobody sees. */
const MAX_LAYER_SCALE = 110;

export class Renderer {
  private readonly context: CanvasRenderingContext2D;
  private layers: PitchLayers | null = null;
  private layersKey = "";

  constructor(
    canvas: HTMLCanvasElement,
    private readonly camera: Camera,
  ) {
    this.context = canvas.getContext("2d", { alpha: false })!;
  }

  draw(moment: Moment): void {
    const { context, camera } = this;
    const { match, tick, celebration, palette } = moment;
    const runOn = celebration && !moment.calm ? ballRunOn(match, celebration) : { x: 0, z: 0 };
    const scene = sceneAt(match, tick);
    const ball = { x: scene.ball.x + runOn.x, z: scene.ball.z + runOn.z };
    const layers = this.pitchLayers(match.pitch, palette);
    this.drawBackdrop();
    this.drawLayer(layers.ground);
    camera.applyWorld(context);
    if (moment.trails && !moment.calm) drawTrails(context, match, tick, palette);
    if (moment.raysOf !== null) {
      drawRays(context, camera, scene.agents[moment.raysOf], castRays(match.pitch, scene, moment.raysOf));
    }
    this.drawBodies(moment, scene, ball);
    this.drawLayer(layers.nets);
    camera.applyWorld(context);
    drawKickFlashes(context, match, tick, palette);
    if (celebration && !moment.calm) drawConfetti(context, celebration, palette, BANNER_S);
    context.setTransform(camera.pixelRatio, 0, 0, camera.pixelRatio, 0, 0);
    scene.agents.forEach((pose, i) => drawLabel(context, camera, pose, String(i + 1)));
    if (moment.raysOf !== null) {
      drawChoiceLabels(context, camera, scene.agents[moment.raysOf], choicesAt(match, moment.raysOf, tick));
    }
  }

  private drawBodies(moment: Moment, scene: Scene, ball: { x: number; z: number }): void {
    const { context, camera } = this;
    for (const pose of scene.agents) drawShadow(context, camera, pose.x, pose.z, AGENT_RADIUS);
    drawShadow(context, camera, ball.x, ball.z, BALL_RADIUS);
    if (moment.played !== null) drawMark(context, scene.agents[moment.played]);
    if (moment.raysOf !== null) {
      drawSelection(context, camera, scene.agents[moment.raysOf]);
      drawChoices(context, scene.agents[moment.raysOf], choicesAt(moment.match, moment.raysOf, moment.tick));
    }
    moment.match.pitch.scenery.agents.forEach(({ team }, i) => {
      drawAgent(context, camera, scene.agents[i], team, moment.palette.teams[team]);
    });
    const moved = { x: ball.x - scene.ball.x, z: ball.z - scene.ball.z };
    drawBall(context, camera, ball, moment.roll.at(moment.calm ? 0 : moment.tick, moved));
  }

  private drawBackdrop(): void {
    const { context, camera } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    const { width, height } = context.canvas;
    const glow = context.createRadialGradient(
      width / 2,
      height / 2,
      0,
      width / 2,
      height / 2,
      Math.max(width, height) * 0.62,
    );
    glow.addColorStop(0, "#16212e");
    glow.addColorStop(0.75, "#0d141d");
    glow.addColorStop(1, "#090e15");
    context.fillStyle = glow;
    context.fillRect(0, 0, width, height);
    camera.applyWorld(context);
  }

  private drawLayer(layer: HTMLCanvasElement): void {
    const { context, camera } = this;
    const centre = camera.toScreen(0, 0);
    const [halfX, halfY] = camera.portrait ? [WORLD_HALF_Z, WORLD_HALF_X] : [WORLD_HALF_X, WORLD_HALF_Z];
    context.setTransform(camera.pixelRatio, 0, 0, camera.pixelRatio, 0, 0);
    context.drawImage(
      layer,
      centre.x - halfX * camera.scale,
      centre.y - halfY * camera.scale,
      2 * halfX * camera.scale,
      2 * halfY * camera.scale,
    );
  }

  private pitchLayers(pitch: Pitch, palette: Palette): PitchLayers {
    const { camera } = this;
    const scale = Math.min(MAX_LAYER_SCALE, camera.targetScale * camera.pixelRatio);
    const key = [pitch.pitch, palette.id, camera.portrait, camera.swapped, scale].join();
    if (this.layers === null || key !== this.layersKey) {
      this.layers = drawPitch(camera, pitch, palette, scale);
      this.layersKey = key;
    }
    return this.layers;
  }
}
