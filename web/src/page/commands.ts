// Everything a reader can do, with its keys: the one list behind keyboard, buttons and help.
import type { Viewer } from "./viewer";

export interface Command {
  readonly keys: readonly string[];
  /** How the help shows the keys. */
  readonly shown: string;
  readonly does: string;
  run(viewer: Viewer): void;
}

function command(keys: readonly string[], shown: string, does: string, run: (viewer: Viewer) => void): Command {
  return { keys, shown, does, run };
}

export const COMMANDS: readonly Command[] = [
  command([" ", "k"], "Space", "Play or pause", (v) => v.togglePlay()),
  command(["ArrowLeft"], "←", "Back 1 second", (v) => v.skip(-1)),
  command(["ArrowRight"], "→", "Forward 1 second", (v) => v.skip(1)),
  command(["Shift+ArrowLeft"], "Shift ←", "Back 5 seconds", (v) => v.skip(-5)),
  command(["Shift+ArrowRight"], "Shift →", "Forward 5 seconds", (v) => v.skip(5)),
  command([","], ",", "One frame back", (v) => v.step(-1)),
  command(["."], ".", "One frame forward", (v) => v.step(1)),
  command(["ArrowUp", "+", "="], "↑  +", "Faster", (v) => v.changeSpeed(1)),
  command(["ArrowDown", "-"], "↓  -", "Slower", (v) => v.changeSpeed(-1)),
  command(["Home"], "Home", "To the start", (v) => v.seek(0)),
  command(["End"], "End", "To the end", (v) => v.seek(Infinity)),
  command(["g"], "G", "To the next goal", (v) => v.seekNextGoal()),
  command(["n"], "N", "Next match", (v) => v.selectMatch(v.matchIndex + 1)),
  command(["p"], "P", "Previous match", (v) => v.selectMatch(v.matchIndex - 1)),
  ...[0, 1, 2, 3].map((agent) =>
    command([String(agent + 1)], String(agent + 1), `Sensors of player ${agent + 1} on or off`, (v) =>
      v.toggleRays(agent),
    ),
  ),
  command(["r"], "R", "Sensors on or off", (v) => v.toggleRays(v.raysOf ?? v.lastRaysOf)),
  command(["s"], "S", "Swap sides", (v) => v.toggleSwap()),
  command(["f"], "F", "Follow the ball", (v) => v.toggleFollow()),
  command(["t"], "T", "Trails", (v) => v.toggleTrails()),
  command(["c"], "C", "Other colours", (v) => v.togglePalette()),
  command(["l"], "L", "Copy a link to this moment", (v) => void v.copyLink()),
  command(["x"], "X", "Full screen", (v) => void v.toggleFullscreen()),
  command(["?", "h"], "?", "This help", (v) => v.showHelp()),
];

/** Keys act on the page as a whole, except where an element needs them itself. */
export function handleKeys(viewer: Viewer): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const target = event.target as Element;
    const pressesButton = target instanceof HTMLButtonElement && event.key === " ";
    if (target instanceof HTMLSelectElement || pressesButton) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const name = event.shiftKey && key.startsWith("Arrow") ? `Shift+${key}` : key;
    const found = COMMANDS.find((candidate) => candidate.keys.includes(name));
    if (!found) return;
    event.preventDefault();
    found.run(viewer);
  });
}
