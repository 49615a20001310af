// A live match on the page: the pitch with everything around it, and the reader's hands on one of the players.
import type { Ready, Refused, Start } from "../api";
import { PALETTES } from "../draw/palette";
import { BallRoll } from "../game/roll";
import { sceneAt, scoreAt } from "../game/scene";
import { agentCards } from "../page/agents";
import { showColours } from "../page/colours";
import { element, setText } from "../page/dom";
import { everyFrame } from "../page/frames";
import { toggleFullscreen } from "../page/fullscreen";
import { legend } from "../page/lists";
import { goalBanner, Notice } from "../page/overlays";
import { scoreboard } from "../page/scoreboard";
import { FIRST_ORBIT, Stage } from "../page/stage";
import { describeEvent, type Part, type View } from "../page/view";
import { teamOf, type Pitch, type Team } from "../replay/pitch";
import type { MatchEvent } from "../replay/replay";
import { loadSolid } from "../site/solid";
import { LiveClock } from "./clock";
import { Connection } from "./connection";
import { gameControls } from "./controls";
import { eventLog } from "./events";
import { Pad } from "./pad";
import { LiveRecord } from "./record";

/** How close the 3-D view follows the reader's own player. */
const OWN_ORBIT = { ...FIRST_ORBIT, elevation: 26, distance: 11 };

export interface GameListener {
  /** The match begins; `ready` says which one it is. */
  ready(ready: Ready): void;
  again(sameSeed: boolean): void;
  copyLink(): Promise<boolean>;
}

export class Game {
  readonly root = element("div", { class: "palus" });
  raysOf: number | null = null;
  paused = false;
  private match: LiveRecord | null = null;
  private clock: LiveClock | null = null;
  private roll: BallRoll | null = null;
  private ended = false;
  /** How it ended stands on the page. */
  private told = false;
  private contrast = false;
  private dirty = true;
  private readonly closing = new AbortController();
  private readonly calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  private readonly stage = new Stage({
    onChange: () => this.changed(),
    onResize: () => this.draw(Infinity),
    onClick: () => this.togglePause(),
  });
  private readonly notice = new Notice();
  private readonly announcer = element("div", { class: "visually-hidden", "aria-live": "polite" });
  private readonly pad = new Pad((choice) => this.connection.act(choice));
  private readonly connection: Connection;
  private parts: Part[] = [];

  constructor(
    private readonly start: Start,
    private readonly pitch: Pitch,
    private readonly listener: GameListener,
  ) {
    this.message("Waiting for the players …", "status");
    this.stage.camera.swapped = this.plays(1);
    this.calm.addEventListener("change", () => this.changed(), { signal: this.closing.signal });
    this.connection = new Connection(start, pitch, {
      ready: (ready) => this.begin(ready),
      step: (step) => this.match?.add(step),
      ended: (refused) => this.end(refused),
    });
  }

  /** What is on screen; null before the match began. For the parts, and for scripts that look at the page. */
  get view(): View {
    const { match, clock, raysOf } = this;
    if (match === null || clock === null) throw new Error("the match has not begun");
    return {
      matchIndex: 0,
      match,
      player: clock,
      palette: PALETTES[this.contrast ? 1 : 0],
      swapped: this.stage.camera.swapped,
      follow: false,
      trails: true,
      solid: this.stage.orbit !== null,
      filming: false,
      raysOf,
      score: scoreAt(match, clock.tick),
    };
  }

  get playing(): boolean {
    return this.match !== null && !this.ended && !this.paused;
  }

  get over(): boolean {
    return this.ended;
  }

  /** Stop it; the server frees its place. */
  close(): void {
    this.ended = true;
    this.closing.abort();
    this.connection.close();
    this.stage.close();
    this.root.remove();
  }

  togglePause(): void {
    if (this.match === null || this.ended) return;
    this.paused = !this.paused;
    this.pad.release();
    this.connection.pause(this.paused);
    this.notice.show(this.paused ? "Paused" : "Go on");
    this.changed();
  }

  toggleRays(agent: number): void {
    if (agent >= this.pitch.scenery.agents.length) return;
    this.raysOf = this.raysOf === agent ? null : agent;
    this.changed();
  }

  togglePalette(): void {
    this.contrast = !this.contrast;
    this.changed();
  }

  toggleSwap(): void {
    this.stage.camera.swapped = !this.stage.camera.swapped;
    this.changed();
  }

  async toggleSolid(): Promise<void> {
    if (this.stage.orbit !== null) return this.stage.showFlat();
    const orbit = this.start.person === null ? FIRST_ORBIT : OWN_ORBIT;
    await this.stage
      .showSolid(loadSolid, orbit)
      .catch((error: Error) => this.notice.show(`No 3-D view: ${error.message}`));
  }

  toggleFullscreen(): Promise<void> {
    return toggleFullscreen(this.root, this.notice);
  }

  again(sameSeed: boolean): void {
    this.listener.again(sameSeed);
  }

  async copyLink(): Promise<void> {
    const copied = await this.listener.copyLink();
    this.notice.show(copied ? "Link to this match copied" : "The address bar holds the link to this match");
  }

  /** Returns whether the key moved the reader's player. */
  move(event: KeyboardEvent, down: boolean): boolean {
    if (this.start.person === null || (down && !this.playing)) return false;
    return this.pad.key(event, down);
  }

  /** Let go of all keys. */
  release(): void {
    this.pad.release();
  }

  /** Whether the reader's player is in this team. */
  private plays(team: Team): boolean {
    const { person } = this.start;
    return person !== null && teamOf(this.pitch, person) === team;
  }

  private begin(ready: Ready): void {
    const { agents } = this.pitch.scenery;
    const you = (team: Team, name: string): string => {
      if (!this.plays(team)) return name;
      return agents.filter((agent) => agent.team === team).length > 1 ? `You & ${name}` : "You";
    };
    const bare = (word: string): string => word.replace(/@.*/, "");
    this.match = new LiveRecord(this.pitch, ready, [you(0, bare(ready.blue)), you(1, bare(ready.purple))]);
    this.clock = new LiveClock(this.match, ready.duration_s, (goal) => this.announce(goal));
    this.roll = new BallRoll(this.match);
    this.build();
    this.listener.ready(ready);
    this.stage.fit();
    everyFrame((seconds) => this.frame(seconds));
  }

  private build(): void {
    const board = scoreboard();
    const banner = goalBanner();
    const controls = gameControls(this);
    const cards = agentCards(this, this.pitch);
    const senses = legend();
    const events = eventLog();
    this.parts = [board, banner, controls, cards, senses, events];
    this.stage.root.append(banner.root, this.notice.root);
    const hands = this.start.person === null ? [] : [this.pad.root];
    this.root.replaceChildren(
      element("div", { class: "top" }, board.root),
      element("div", { class: "watch" }, this.stage.root, ...hands, controls.root, cards.root),
      element("section", { class: "details", "aria-label": "Details" }, senses.root, events.root),
      this.announcer,
    );
  }

  private frame(seconds: number): boolean {
    if (!this.root.isConnected) return false;
    const moment = (): string => [this.clock?.tick, this.clock?.celebration?.elapsed, this.clock?.finished].join();
    const before = moment();
    this.clock?.advance(this.paused ? 0 : seconds, this.ended);
    if (this.dirty || this.stage.isMoving || moment() !== before) this.draw(this.calm.matches ? Infinity : seconds);
    if (this.clock?.finished && this.match !== null && !this.told) this.tellResult(this.match.score);
    return true;
  }

  private draw(seconds: number): void {
    const { match, clock, roll } = this;
    if (match === null || clock === null || roll === null) return;
    this.dirty = false;
    const view = this.view;
    const { palette, trails, raysOf } = view;
    const played = this.start.person;
    const scene = sceneAt(match, clock.tick);
    const calm = this.calm.matches;
    clock.playing = this.playing;
    this.stage.draw(
      { match, roll, tick: clock.tick, celebration: clock.celebration, palette, trails, raysOf, played, calm },
      scene.ball,
      seconds,
      played === null || calm ? null : scene.agents[played],
    );
    showColours(this.root, palette);
    for (const part of this.parts) part.update(view);
  }

  private announce(goal: MatchEvent): void {
    setText(this.announcer, `${describeEvent(this.view, goal)}. ${this.view.score.join(" to ")}.`);
  }

  private changed(): void {
    this.dirty = true;
  }

  private end(refused: Refused | null): void {
    this.ended = true;
    this.changed();
    this.pad.release();
    if (this.match === null) return this.message(refused?.reason ?? "The match did not begin.", "alert");
    // The pictures are a little behind what has arrived: full time is when they are through.
    if (refused === null) return;
    setText(this.announcer, refused.reason);
    this.notice.keep(refused.reason);
    this.told = true;
  }

  private tellResult(score: readonly [number, number]): void {
    this.told = true;
    setText(this.announcer, `The match is over, ${score.join(" to ")}.`);
    this.notice.keep(`Full time · ${score.join(":")}`);
  }

  private message(text: string, role: "status" | "alert"): void {
    this.root.replaceChildren(element("p", { class: "message", role }, text));
  }
}
