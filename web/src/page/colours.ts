// Tells the style sheet the colours of the teams.
import type { Palette } from "../draw/palette";

export function showColours(root: HTMLElement, palette: Palette): void {
  root.dataset["colours"] = palette.id;
  palette.teams.forEach((team, i) => {
    root.style.setProperty(`--team-${i}`, team.base);
    root.style.setProperty(`--team-${i}-text`, team.text);
  });
}
