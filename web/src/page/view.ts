// What the page's parts need to know to show themselves. Filled in by viewer.ts, read by everything beside it.
import type { Palette } from "../draw/palette";
import type { Player } from "../game/player";
import type { Match, MatchEvent, Replay } from "../replay/replay";
import { teamOf } from "../replay/replay";

export interface View {
  readonly replay: Replay;
  readonly matchIndex: number;
  readonly match: Match;
  readonly player: Player;
  readonly palette: Palette;
  readonly swapped: boolean;
  readonly follow: boolean;
  readonly trails: boolean;
  readonly raysOf: number | null;
  readonly score: readonly [number, number];
}

/** A part of the page: `update` is called for every frame and touches only what changed. */
export interface Part {
  readonly root: HTMLElement;
  update(view: View): void;
}

export function agentName(palette: Palette, agent: number): string {
  return `${palette.teams[teamOf(agent)].name} ${agent < 2 ? "A" : "B"}`;
}

/** One line of the event list, which stands in for the picture where that cannot be seen. */
export function describeEvent(view: Pick<View, "match" | "palette">, event: MatchEvent): string {
  if (event.kind === "kick") return `Kick by ${agentName(view.palette, event.agent)}`;
  return `Goal for ${view.palette.teams[event.team].name}, ${view.match.names[event.team]}`;
}
