// The viewer: holds what is shown, changes it on request, and draws when something changed.
import { Camera } from "../draw/camera";
import { PALETTES } from "../draw/palette";
import { Renderer } from "../draw/renderer";
import { Player, SPEEDS } from "../game/player";
import { BallRoll } from "../game/roll";
import { scoreAt } from "../game/scene";
import type { Match, MatchEvent, Replay } from "../replay/replay";
import { agentCards } from "./agents";
import { handleKeys } from "./commands";
import { controls } from "./controls";
import { element, setText } from "./dom";
import { formatLink, parseLink } from "./link";
import { eventList, legend, matchList } from "./lists";
import { bigPlayButton, goalBanner, helpDialog, Notice } from "./overlays";
import { scoreboard } from "./scoreboard";
import { seekbar } from "./seekbar";
import { describeEvent, type Part, type View } from "./view";

/** Longer pauses between two pictures (another tab was in front) do not make play leap. */
const MAX_FRAME_S = 0.1;

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
  private shownLink = "";
  private lastFrameMs = 0;
  private readonly calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  private readonly camera = new Camera();
  private readonly canvas = element("canvas", {
    role: "img",
    "aria-label": "The pitch from above; the event list tells what happens",
  });
  private readonly stage = element("div", { class: "stage" }, this.canvas);
  private readonly announcer = element("div", { class: "visually-hidden", "aria-live": "polite" });
  private readonly notice = new Notice();
  private readonly help = helpDialog();
  private readonly renderer = new Renderer(this.canvas, this.camera);
  private readonly parts: readonly Part[];

  constructor(
    private readonly root: HTMLElement,
    readonly replay: Replay,
  ) {
    this.match = replay.matches[0];
    this.player = this.newPlayer(this.match);
    this.roll = new BallRoll(this.match);
    this.parts = this.build();
    handleKeys(this);
    new ResizeObserver(() => this.resize()).observe(this.stage);
    window.addEventListener("hashchange", () => this.openLink(location.hash));
    this.calm.addEventListener("change", () => this.changed());
    this.resize();
    this.openLink(location.hash);
    requestAnimationFrame((now) => this.frame(now));
  }

  /** What is on screen, for scripts that look at the page. */
  get view(): View {
    const { replay, matchIndex, match, player, trails, raysOf, follow } = this;
    const { swapped } = this.camera;
    const palette = PALETTES[this.contrast ? 1 : 0];
    return {
      replay,
      matchIndex,
      match,
      player,
      palette,
      swapped,
      follow,
      trails,
      raysOf,
      score: scoreAt(match, player.tick),
    };
  }

  togglePlay(): void {
    this.player.toggle();
    this.changed();
  }

  seek(seconds: number): void {
    this.player.seek(seconds);
    this.camera.track(this.ballAt(this.player.tick), Infinity);
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
    this.camera.track(this.ballAt(0), Infinity);
    this.changed();
  }

  toggleRays(agent: number): void {
    this.raysOf = this.raysOf === agent ? null : agent;
    this.lastRaysOf = agent;
    this.changed();
  }

  toggleSwap(): void {
    this.camera.swapped = !this.camera.swapped;
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
    this.notice.show(PALETTES[this.contrast ? 1 : 0].label);
    this.changed();
  }

  showHelp(): void {
    this.help.showModal();
  }

  async toggleFullscreen(): Promise<void> {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await this.root.requestFullscreen().catch(() => this.notice.show("This browser does not allow full screen"));
  }

  async copyLink(): Promise<void> {
    this.writeLink();
    try {
      await navigator.clipboard.writeText(location.href);
      this.notice.show("Link to this moment copied");
    } catch {
      this.notice.show("The address bar holds the link to this moment");
    }
  }

  private build(): Part[] {
    const over = [goalBanner(), bigPlayButton(this)];
    const board = scoreboard();
    const under = [seekbar((seconds) => this.seek(seconds)), controls(this), agentCards(this)];
    const side = [matchList(this), legend(), eventList(this)];
    this.stage.append(...over.map((part) => part.root), this.notice.root);
    const title = element("h1", {}, this.replay.title);
    this.root.replaceChildren(
      element("header", { class: "top" }, title, board.root),
      element("main", {}, this.stage, ...under.map((part) => part.root)),
      element("aside", { "aria-label": "Details" }, ...side.map((part) => part.root)),
      this.announcer,
      this.help,
    );
    this.stage.addEventListener("click", (event) => {
      if (event.target === this.canvas) this.togglePlay();
    });
    return [...over, board, ...under, ...side];
  }

  private newPlayer(match: Match): Player {
    return new Player(match, (goal) => this.announce(goal));
  }

  private announce(goal: MatchEvent): void {
    const text = describeEvent(this.view, goal);
    setText(this.announcer, `${text}. ${scoreAt(this.match, goal.tick).join(" to ")}.`);
  }

  private openLink(hash: string): void {
    if (hash === this.shownLink) return;
    const state = parseLink(hash);
    this.selectMatch(Math.max(0, Math.min(this.replay.matches.length, state.match) - 1));
    this.raysOf = state.rays === null ? null : state.rays - 1;
    this.lastRaysOf = this.raysOf ?? this.lastRaysOf;
    this.camera.swapped = state.swapped;
    this.follow = state.follow;
    this.camera.follow = state.follow && !this.calm.matches;
    this.contrast = state.contrast;
    this.seek(state.seconds);
  }

  private writeLink(): void {
    this.shownLink = formatLink({
      match: this.matchIndex + 1,
      seconds: this.player.time,
      rays: this.raysOf === null ? null : this.raysOf + 1,
      swapped: this.camera.swapped,
      follow: this.follow,
      contrast: this.contrast,
    });
    if (location.hash !== this.shownLink) history.replaceState(null, "", this.shownLink);
  }

  private ballAt(tick: number): { x: number; z: number } {
    const at = Math.round(tick);
    return { x: this.match.channels[12][at], z: this.match.channels[13][at] };
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.stage;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.camera.resize(Math.max(1, clientWidth), Math.max(1, clientHeight), ratio);
    this.canvas.width = Math.round(this.camera.width * ratio);
    this.canvas.height = Math.round(this.camera.height * ratio);
    this.draw(Infinity);
  }

  private changed(): void {
    this.dirty = true;
  }

  private frame(nowMs: number): void {
    const seconds = Math.min(MAX_FRAME_S, (nowMs - this.lastFrameMs) / 1000);
    this.lastFrameMs = nowMs;
    if (this.player.playing) {
      this.player.advance(seconds);
      this.dirty = true;
      if (this.player.finished) this.playNext();
    }
    if (this.dirty || this.camera.isMoving) {
      this.dirty = false;
      this.draw(this.calm.matches ? Infinity : seconds);
      if (!this.player.playing) this.writeLink();
    }
    requestAnimationFrame((now) => this.frame(now));
  }

  /** A reel plays on; the last match stays at its end. */
  private playNext(): void {
    if (this.matchIndex + 1 >= this.replay.matches.length) return;
    this.selectMatch(this.matchIndex + 1);
    this.player.playing = true;
  }

  private draw(seconds: number): void {
    const view = this.view;
    const { match, player, palette, trails, raysOf } = view;
    // Reduced motion: the camera stays where the whole pitch is in sight.
    this.camera.follow = this.follow && !this.calm.matches;
    this.camera.track(this.ballAt(player.tick), seconds);
    this.renderer.draw({
      match,
      roll: this.roll,
      tick: player.tick,
      celebration: player.celebration,
      palette,
      trails,
      raysOf,
      calm: this.calm.matches,
    });
    this.root.dataset["colours"] = palette.id;
    palette.teams.forEach((team, i) => {
      this.root.style.setProperty(`--team-${i}`, team.base);
      this.root.style.setProperty(`--team-${i}-text`, team.text);
    });
    for (const part of this.parts) part.update(view);
  }
}
