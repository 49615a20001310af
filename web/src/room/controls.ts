// The buttons of a live match and their keys.
import { element, icon, type IconName } from "../page/dom";
import type { Part, View } from "../page/view";
import type { Game } from "./game";

interface Control {
  readonly name: IconName;
  readonly label: string;
  /** KeyboardEvent.code and what stands on the key. */
  readonly code: string;
  readonly key: string;
  act(game: Game): void;
  pressed?(view: View): boolean;
}

const CONTROLS: readonly Control[] = [
  { name: "restart", label: "Play this match again", code: "KeyR", key: "R", act: (g) => g.again(true) },
  { name: "forward", label: "Another match of the two", code: "KeyN", key: "N", act: (g) => g.again(false) },
  { name: "swap", label: "Swap sides", code: "KeyB", key: "B", act: (g) => g.toggleSwap(), pressed: (v) => v.swapped },
  {
    name: "solid",
    label: "3-D view",
    code: "KeyV",
    key: "V",
    act: (g) => void g.toggleSolid(),
    pressed: (v) => v.solid,
  },
  {
    name: "palette",
    label: "Other colours",
    code: "KeyC",
    key: "C",
    act: (g) => g.togglePalette(),
    pressed: (v) => v.palette.id === "contrast",
  },
  { name: "link", label: "Copy a link to this match", code: "KeyL", key: "L", act: (g) => void g.copyLink() },
  { name: "fullscreen", label: "Full screen", code: "KeyX", key: "X", act: (g) => void g.toggleFullscreen() },
];

/** Keys of a live match besides those that move the reader's player. agents: how many there are. */
export function gameKeys(agents: number): (readonly [key: string, does: string])[] {
  return [
    ["Space", "Pause or go on"],
    [`1 to ${agents}`, "Sensors and choices of a player"],
    ...CONTROLS.map(({ key, label }) => [key, label] as const),
  ];
}

export function gameControls(game: Game): Part {
  const pause = element("button", { type: "button", class: "play" });
  pause.addEventListener("click", () => game.togglePause());
  const buttons = CONTROLS.map((control) => {
    const made = element(
      "button",
      { type: "button", "aria-label": control.label, title: `${control.label} (${control.key})` },
      icon(control.name),
    );
    made.addEventListener("click", () => control.act(game));
    return made;
  });
  const root = element("div", { class: "controls", role: "group", "aria-label": "Match" });
  root.append(
    element("div", { class: "group" }, pause, ...buttons.slice(0, 2)),
    element("div", { class: "group" }, ...buttons.slice(2)),
  );
  let shown = "";
  return {
    root,
    update(view) {
      const label = game.paused ? "Go on" : "Pause";
      if (label !== shown) {
        shown = label;
        pause.replaceChildren(icon(game.paused ? "play" : "pause"));
        pause.setAttribute("aria-label", label);
        pause.title = `${label} (Space)`;
      }
      pause.disabled = game.over;
      CONTROLS.forEach(({ pressed }, i) => {
        if (pressed) buttons[i].setAttribute("aria-pressed", String(pressed(view)));
      });
    },
  };
}

/** Returns whether the key was one of these. Held down, it acts once. */
export function gameKey(game: Game, event: KeyboardEvent): boolean {
  const act = actOf(event.code);
  if (act && !event.repeat) act(game);
  return act !== undefined;
}

function actOf(code: string): ((game: Game) => void) | undefined {
  if (code === "Space") return (game) => game.togglePause();
  if (/^Digit[1-9]$/.test(code)) return (game) => game.toggleRays(Number(code.at(-1)) - 1);
  return CONTROLS.find((control) => control.code === code)?.act;
}
