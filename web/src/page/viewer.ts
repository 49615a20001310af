// The viewer: holds what is shown, changes it on request, and draws when something changed.
import { PALETTES } from "../draw/palette";
import { Player, SPEEDS } from "../game/player";
import { BallRoll } from "../game/roll";
import { sceneAt, scoreAt } from "../game/scene";
import type { Match, MatchEvent, Replay } from "../replay/replay";
import type { SolidModule } from "../three/contract";
import { handleKeys } from "./commands";
import { copy, element, setText } from "./dom";
import { Film } from "./film";
import { everyFrame } from "./frames";
import { toggleFullscreen } from "./fullscreen";
import { formatLink, parseLink, type LinkPlace, type Orbit } from "./link";
import { layOut } from "./layout";
import { helpDialog, Notice } from "./overlays";
import { FIRST_ORBIT, Stage } from "./stage";
import { showColours } from "./colours";
import { describeEvent, type Part, type View } from "./view";

export interface ViewerOptions {
  readonly link: LinkPlace;
  /** How to get the 3-D view; null where there is none. */
  readonly loadSolid: (() => Promise<SolidModule>) | null;
  /** Part of a page that has its own heading and main region. */
  readonly embedded: boolean;
}

/** Browsers take so many new addresses in half a minute (Safari: 100), and raise at the next one. */
const WRITE_MS = 400;

export class Viewer {
  matchIndex = 0;
  raysOf: number | null = null;
  lastRaysOf = 0;
  private match: Match;
  private player: Player;
  private roll: BallRoll;
  private trails = true;
  private follow = false;
  private contrast = false;
  private dirty = true;
  /** The moment shown is not the one after the last: the camera goes there at once. */
  private jumped = true;
  private shownLink = "";
  /** When the address was written last, and whether it is out of date. */
  private writtenMs = -Infinity;
  private unwritten = false;
  private readonly closing = new AbortController();
  private readonly calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  private readonly stage = new Stage({
    onChange: () => this.changed(),
    onResize: () => this.draw(Infinity),
    onClick: () => this.togglePlay(),
  });
  private readonly film = new Film();
  private readonly announcer = element("div", { class: "visually-hidden", "aria-live": "polite" });
  private readonly notice = new Notice();
  private readonly help: HTMLDialogElement;
  private readonly parts: readonly Part[];

  constructor(
    private readonly root: HTMLElement,
    readonly replay: Replay,
    private readonly options: ViewerOptions,
  ) {
    this.match = replay.matches[0];
    this.player = this.newPlayer(this.match);
    this.roll = new BallRoll(this.match);
    this.help = helpDialog(replay.pitch, this.canBeSolid);
    const { stage, notice, announcer, help } = this;
    this.parts = layOut(this, root, options.embedded, { stage: stage.root, notice: notice.root, announcer, help });
    const { signal } = this.closing;
    handleKeys(this, signal);
    options.link.onOpened(() => this.openLink(), signal);
    this.calm.addEventListener("change", () => this.changed(), { signal });
    this.openLink();
    this.stage.fit();
    everyFrame((seconds) => this.frame(seconds));
  }

  /** What is on screen, for the page's parts and for scripts that look at the page. */
  get view(): View {
    const { matchIndex, match, player, trails, raysOf, follow } = this;
    return {
      matchIndex,
      match,
      player,
      palette: PALETTES[this.contrast ? 1 : 0],
      swapped: this.stage.camera.swapped,
      follow,
      trails,
      solid: this.stage.orbit !== null,
      filming: this.film.running,
      raysOf,
      score: scoreAt(match, player.tick),
    };
  }

  get canBeSolid(): boolean {
    return this.options.loadSolid !== null;
  }

  /** For good: nothing is listened to or drawn any more, and a video of it is saved. */
  close(): void {
    this.closing.abort();
    this.film.stop();
    this.stage.close();
  }

  /**
   * Whether a key that is pressed there is meant for the viewer: beside other content, only when no part of that has
   * it. What is around the viewer has it after a click on whatever takes no focus, the pitch among it.
   */
  takesKeysOf(target: Element): boolean {
    if (!this.options.embedded || this.root.contains(target)) return true;
    return target.contains(this.root) && this.stage.inSight;
  }

  togglePlay(): void {
    this.player.toggle();
    this.changed();
  }

  seek(seconds: number): void {
    this.player.seek(seconds);
    this.jumped = true;
    this.changed();
  }

  skip(seconds: number): void {
    this.seek(this.player.time + seconds);
  }

  step(frames: number): void {
    this.player.step(frames);
    this.changed();
  }

  seekNextGoal(): void {
    const goals = this.match.events.filter((event) => event.kind === "goal");
    const next = goals.find((goal) => goal.tick > Math.round(this.player.tick)) ?? goals[0];
    if (next) this.seek(next.tick / this.match.frameHz);
    else this.notice.show("No goals in this match");
  }

  setSpeed(speed: number): void {
    if (SPEEDS.some((known) => known === speed)) this.player.speed = speed;
    this.changed();
  }

  changeSpeed(steps: number): void {
    this.player.changeSpeed(steps);
    this.notice.show(`Speed ${this.player.speed}×`);
    this.changed();
  }

  selectMatch(index: number): void {
    if (index < 0 || index >= this.replay.matches.length || index === this.matchIndex) return;
    const { playing, speed } = this.player;
    this.matchIndex = index;
    this.match = this.replay.matches[index];
    this.player = this.newPlayer(this.match);
    this.player.playing = playing;
    this.player.speed = speed;
    this.roll = new BallRoll(this.match);
    this.jumped = true;
    this.changed();
  }

  toggleRays(agent: number): void {
    this.raysOf = this.raysOf === agent ? null : agent;
    this.lastRaysOf = agent;
    this.changed();
  }

  toggleSwap(): void {
    this.stage.camera.swapped = !this.stage.camera.swapped;
    this.changed();
  }

  toggleFollow(): void {
    this.follow = !this.follow;
    this.changed();
  }

  toggleTrails(): void {
    this.trails = !this.trails;
    this.changed();
  }

  togglePalette(): void {
    this.contrast = !this.contrast;
    this.notice.show(this.view.palette.label);
    this.changed();
  }

  async toggleSolid(): Promise<void> {
    if (this.stage.orbit === null) return this.showSolid(FIRST_ORBIT);
    this.stage.showFlat();
    this.changed();
  }

  /** Move the eye of the 3-D view; degrees and a factor of the distance. */
  turn(azimuth: number, elevation: number, zoom = 1): void {
    this.stage.turn(azimuth, elevation, zoom);
  }

  /** Start a video of what is shown from now on, or finish it and save it. */
  toggleFilm(): void {
    if (this.film.running) this.film.stop();
    else if (!this.film.start(this.stage.canvas, this.view)) this.notice.show("This browser cannot record videos");
    else if (!this.player.playing) this.player.toggle();
    this.changed();
  }

  showHelp(): void {
    this.help.showModal();
  }

  toggleFullscreen(): Promise<void> {
    return toggleFullscreen(this.root, this.notice);
  }

  async copyLink(): Promise<void> {
    this.writeLink();
    const copied = await copy(location.href);
    this.notice.show(copied ? "Link to this moment copied" : "The address bar holds the link to this moment");
  }

  private async showSolid(orbit: Orbit): Promise<void> {
    const load = this.options.loadSolid;
    if (load === null) return this.notice.show("This file was written without the 3-D view");
    await this.stage
      .showSolid(load, orbit)
      .catch((error: Error) => this.notice.show(`No 3-D view: ${error.message}`));
    this.changed();
  }

  private newPlayer(match: Match): Player {
    return new Player(match, (goal) => this.announce(goal));
  }

  private announce(goal: MatchEvent): void {
    const text = describeEvent(this.view, goal);
    setText(this.announcer, `${text}. ${scoreAt(this.match, goal.tick).join(" to ")}.`);
  }

  private openLink(): void {
    const { link } = this.options;
    const state = parseLink(link.read(), link.key);
    const shown = String(formatLink(state, link.key));
    if (shown === this.shownLink) return;
    this.shownLink = shown;
    this.selectMatch(Math.max(0, Math.min(this.replay.matches.length, state.match) - 1));
    const { rays } = state;
    this.raysOf = rays !== null && rays <= this.replay.pitch.scenery.agents.length ? rays - 1 : null;
    this.lastRaysOf = this.raysOf ?? this.lastRaysOf;
    this.stage.camera.swapped = state.swapped;
    this.follow = state.follow;
    this.trails = state.trails;
    this.contrast = state.contrast;
    if (state.orbit === null) this.stage.showFlat();
    else void this.showSolid(state.orbit);
    this.seek(state.seconds);
    if (state.celebrated !== null) this.player.celebrate(state.celebrated);
  }

  private writeLink(): void {
    const { link } = this.options;
    const { celebration } = this.player;
    const values = formatLink(
      {
        match: this.matchIndex + 1,
        seconds: this.player.time,
        celebrated: celebration?.elapsed ?? null,
        rays: this.raysOf === null ? null : this.raysOf + 1,
        swapped: this.stage.camera.swapped,
        follow: this.follow,
        trails: this.trails,
        contrast: this.contrast,
        orbit: this.stage.orbit,
      },
      link.key,
    );
    this.unwritten = false;
    if (String(values) === this.shownLink) return;
    this.writtenMs = performance.now();
    try {
      link.write(values);
      this.shownLink = String(values);
    } catch {
      this.unwritten = true; // other pages of this tab have used up what the browser allows
    }
  }

  private changed(): void {
    this.dirty = true;
  }

  private frame(seconds: number): boolean {
    if (this.closing.signal.aborted) return false;
    if (this.player.playing) {
      this.player.advance(seconds);
      this.dirty = true;
      if (this.player.finished) this.playNext();
    }
    if (this.dirty || this.stage.isMoving) {
      this.draw(this.jumped || this.calm.matches ? Infinity : seconds);
      this.unwritten = true;
    }
    const atRest = !this.player.playing && !this.stage.isMoving;
    if (this.unwritten && atRest && performance.now() - this.writtenMs >= WRITE_MS) this.writeLink();
    return this.root.isConnected;
  }

  /** A reel plays on; the last match stays at its end, and so does a video of it. */
  private playNext(): void {
    if (this.matchIndex + 1 < this.replay.matches.length) {
      this.selectMatch(this.matchIndex + 1);
      this.player.playing = true;
      return;
    }
    setText(this.announcer, `The match is over, ${this.match.score.join(" to ")}.`);
    this.film.stop();
  }

  private draw(seconds: number): void {
    this.dirty = this.jumped = false;
    const view = this.view;
    const { match, player, palette, trails, raysOf } = view;
    const calm = this.calm.matches;
    // Reduced motion: the camera stays where the whole pitch is in sight.
    this.stage.camera.follow = this.follow && !calm;
    const { tick, celebration } = player;
    const moment = { match, roll: this.roll, tick, celebration, palette, trails, raysOf, played: null, calm };
    this.stage.draw(moment, sceneAt(match, tick).ball, seconds);
    this.film.draw(this.stage.canvas, view);
    showColours(this.root, palette);
    for (const part of this.parts) part.update(view);
  }
}
