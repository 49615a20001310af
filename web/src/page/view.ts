// What the page's parts need to know to show themselves. Filled in by the viewer or the demo room, read by the parts.
import type { Palette } from "../draw/palette";
import type { Celebration } from "../game/player";
import type { Match, MatchEvent } from "../replay/replay";
import type { Pitch } from "../replay/pitch";

/** Which moment is shown: the playback clock of a replay, or the clock of a match that is still being played. */
export interface Clock {
  readonly playing: boolean;
  readonly finished: boolean;
  readonly speed: number;
  /** Seconds since kick-off, and of the whole match; null while nobody knows how long it will be. */
  readonly time: number;
  readonly duration: number | null;
  /** The frame shown, between two recorded ones. */
  readonly tick: number;
  readonly celebration: Celebration | null;
}

export interface View {
  readonly matchIndex: number;
  readonly match: Match;
  readonly player: Clock;
  readonly palette: Palette;
  readonly swapped: boolean;
  readonly follow: boolean;
  readonly trails: boolean;
  readonly solid: boolean;
  readonly filming: boolean;
  readonly raysOf: number | null;
  readonly score: readonly [number, number];
}

/** A part of the page: `update` is called for every frame and touches only what changed. */
export interface Part {
  readonly root: HTMLElement;
  update(view: View): void;
}

export function agentName(pitch: Pitch, palette: Palette, agent: number): string {
  const { name, team } = pitch.scenery.agents[agent];
  return `${palette.teams[team].name} ${name}`;
}

/** One line of the event list, which stands in for the picture where that cannot be seen. */
export function describeEvent(view: Pick<View, "match" | "palette">, event: MatchEvent): string {
  if (event.kind === "kick") return `Kick by ${agentName(view.match.pitch, view.palette, event.agent)}`;
  return `Goal for ${view.palette.teams[event.team].name}, ${view.match.names[event.team]}`;
}
