// Colours of the teams and of what the sensors report. Shapes tell the teams apart too, so no colour carries a meaning alone.
import type { Seen } from "../game/rays";

export interface TeamColours {
  readonly name: string;
  /** Body colour, its lit and its shaded side. */
  readonly base: string;
  readonly light: string;
  readonly dark: string;
  /** At least 4.5:1 on the page's background. */
  readonly text: string;
}

export interface Palette {
  readonly id: "classic" | "contrast";
  readonly label: string;
  readonly teams: readonly [TeamColours, TeamColours];
}

export const PALETTES: readonly [Palette, Palette] = [
  {
    id: "classic",
    label: "Blue and purple",
    teams: [
      { name: "Blue", base: "#2f7bff", light: "#7db4ff", dark: "#0f3f9e", text: "#8fbcff" },
      { name: "Purple", base: "#a24bf0", light: "#d6a4ff", dark: "#561b92", text: "#d0a2ff" },
    ],
  },
  {
    id: "contrast",
    label: "Blue and orange, for colour-blind readers",
    teams: [
      { name: "Blue", base: "#1f6fd1", light: "#78b8ff", dark: "#07336e", text: "#8cc3ff" },
      { name: "Orange", base: "#f0a000", light: "#ffd77a", dark: "#8a5200", text: "#ffc14d" },
    ],
  },
];

export const SEEN_COLOURS: Readonly<Record<Seen, string>> = {
  ball: "#fff3a3",
  "own goal": "#7fe3ff",
  "attacked goal": "#ff8fc7",
  wall: "#c9d6e4",
  teammate: "#6ff0c4",
  opponent: "#ff9d6b",
  nothing: "#dfe7ef",
  "something else": "#8fa0b3",
};

export function withAlpha(hex: string, alpha: number): string {
  const part = (at: number) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
}
