// Everything a reader can do, with its keys: the one list behind keyboard, buttons and help.
import type { Pitch } from "../replay/pitch";
import type { Viewer } from "./viewer";

export interface Command {
  readonly keys: readonly string[];
  /** How the help shows the keys. */
  readonly shown: string;
  readonly does: string;
  /** Of the 3-D view: opens it, or needs it open. */
  readonly solid?: "opens" | "turns";
  run(viewer: Viewer): void;
}

const TURN_DEGREES = 10;
const ZOOM_STEP = 1.15;

function command(keys: readonly string[], shown: string, does: string, run: (viewer: Viewer) => void): Command {
  return { keys, shown, does, run };
}

const COMMANDS: readonly Command[] = [
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
  command(["r"], "R", "Sensors on or off", (v) => v.toggleRays(v.raysOf ?? v.lastRaysOf)),
  command(["s"], "S", "Swap sides", (v) => v.toggleSwap()),
  command(["f"], "F", "Follow the ball", (v) => v.toggleFollow()),
  command(["t"], "T", "Trails", (v) => v.toggleTrails()),
  command(["c"], "C", "Other colours", (v) => v.togglePalette()),
  command(["l"], "L", "Copy a link to this moment", (v) => void v.copyLink()),
  command(["x"], "X", "Full screen", (v) => void v.toggleFullscreen()),
  command(["v"], "V", "Record a video, or finish it", (v) => v.toggleFilm()),
  { ...command(["d"], "D", "3-D view", (v) => void v.toggleSolid()), solid: "opens" },
  ...[
    command(["["], "[", "3-D: turn to the left", (v) => v.turn(-TURN_DEGREES, 0)),
    command(["]"], "]", "3-D: turn to the right", (v) => v.turn(TURN_DEGREES, 0)),
    command(["PageUp"], "Page ↑", "3-D: look from higher up", (v) => v.turn(0, TURN_DEGREES)),
    command(["PageDown"], "Page ↓", "3-D: look from lower down", (v) => v.turn(0, -TURN_DEGREES)),
    command(["i"], "I", "3-D: closer", (v) => v.turn(0, 0, 1 / ZOOM_STEP)),
    command(["o"], "O", "3-D: farther away", (v) => v.turn(0, 0, ZOOM_STEP)),
  ].map((made): Command => ({ ...made, solid: "turns" })),
  command(["?", "h"], "?", "This help", (v) => v.showHelp()),
];

/** Those of every pitch, and the sensors of each of its players. */
export function commandsOf({ scenery }: Pitch): readonly Command[] {
  const sensors = scenery.agents.map((_, agent) => {
    const number = String(agent + 1);
    return command([number], number, `Sensors of player ${number} on or off`, (v) => v.toggleRays(agent));
  });
  const after = COMMANDS.findIndex(({ keys }) => keys.includes("r"));
  return COMMANDS.toSpliced(after, 0, ...sensors);
}

/** Keys act on the page as a whole, except where an element needs them itself. Until `closed`. */
export function handleKeys(viewer: Viewer, closed: AbortSignal): void {
  const commands = commandsOf(viewer.replay.pitch);
  const act = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const target = event.target as Element;
    if (!viewer.takesKeysOf(target)) return;
    const pressesButton = target.matches("button, a, summary") && event.key === " ";
    if (pressesButton || target.matches("select, textarea, input:not([type=range])")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const name = event.shiftKey && key.startsWith("Arrow") ? `Shift+${key}` : key;
    const found = commands.find((candidate) => candidate.keys.includes(name));
    if (!found || (found.solid && !viewer.canBeSolid) || (found.solid === "turns" && !viewer.view.solid)) return;
    event.preventDefault();
    found.run(viewer);
  };
  document.addEventListener("keydown", act, { signal: closed });
}
