// Entry of the demo room: choose two players, watch them play now, or play along.
import type { Ready, RoomPlayers, Start } from "../api";
import { element } from "../page/dom";
import { load, path } from "../site/data";
import { parameter, writeParameters } from "../site/links";
import { box, definitions, note } from "../site/parts";
import { buildShell, fill, heading } from "../site/shell";
import { GAME_KEYS, gameKey } from "./controls";
import { Game } from "./game";
import { MOVES } from "./pad";
import { AGENTS, setupForm } from "./setup";
import "../page/viewer.css";
import "./room.css";

declare global {
  interface Window {
    /** For scripts that look at the page. */
    palusRoom?: { readonly game: Game | null };
  }
}

const shell = buildShell("room");
const place = element("section", { class: "stage-panel", "aria-label": "The match" });
let game: Game | null = null;
window.palusRoom = {
  get game() {
    return game;
  },
};

void fill(shell.content, async () => {
  const asked = askedFor();
  const players = await load<RoomPlayers>(path("room", "players", asked.env));
  const setup = setupForm(players, asked, begin);
  const text =
    "Two models meet here and now. Take one of the four players yourself if you like. Nothing here is rated.";
  // A link to a match that nobody plays shows it at once.
  if (asked.blue && asked.purple && asked.person === null) begin(asked);
  return [heading("Play", text), box("Who plays?", "", setup.root), place, help()];
});

function askedFor(): Start {
  const seed = parameter("seed");
  const person = Number(parameter("play"));
  return {
    blue: parameter("blue") ?? "",
    purple: parameter("purple") ?? "",
    env: parameter("env") ?? "SoccerTwos",
    seed: seed !== null && /^\d{1,16}$/.test(seed) ? Number(seed) : null,
    // In links players count from 1, as on the pitch.
    person: AGENTS.find((agent) => agent + 1 === person) ?? null,
  };
}

function begin(start: Start): void {
  game?.close();
  let seed = start.seed;
  const current = new Game(start, {
    ready(ready) {
      seed = ready.seed;
      showLink(ready);
      place.scrollIntoView({ block: "start" });
    },
    again: (sameSeed) => begin({ ...start, seed: sameSeed ? seed : null }),
    copyLink: () =>
      navigator.clipboard.writeText(location.href).then(
        () => true,
        () => false,
      ),
  });
  game = current;
  place.replaceChildren(current.root);
  // Keys go to the match now, not to the form.
  (document.activeElement as HTMLElement | null)?.blur();
}

/** The address says which match this is, down to the revisions of the models. */
function showLink({ blue, purple, seed, person }: Ready): void {
  writeParameters({ blue, purple, seed: String(seed), play: person === null ? null : String(person + 1) });
}

document.addEventListener("keydown", (event) => {
  if (game === null || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target as Element;
  if (target.matches("input, select, textarea") || (target.matches("button, a, summary") && event.key === " ")) return;
  if (game.move(event, true) || (!event.repeat && gameKey(game, event))) event.preventDefault();
});
document.addEventListener("keyup", (event) => game?.move(event, false));
window.addEventListener("blur", () => game?.release());
document.addEventListener("visibilitychange", () => {
  if (document.hidden && game?.playing) game.togglePause();
});
window.addEventListener("pagehide", () => game?.close());

function help(): HTMLElement {
  const moves = MOVES.map(({ keys, name }): [string, Node] => [name, keyText(keys)]);
  const others = GAME_KEYS.map(([key, does]): [string, Node] => [does, keyText(key)]);
  return element(
    "div",
    { class: "columns" },
    box(
      "Your player",
      "",
      note(
        "Directions are as your player sees them: forward is where its white beak points. It may do three things at once.",
      ),
      note("Driving forward into the ball kicks it. The golden ring is yours; in 3-D you look over its shoulder."),
      definitions(moves),
    ),
    box("Keys", "", definitions(others)),
  );
}

function keyText(keys: string): HTMLElement {
  const parts = keys === "Space" || keys.includes(" to ") ? [keys] : keys.split(" ");
  return element("span", {}, ...parts.flatMap((part) => [element("kbd", {}, part), " "]));
}
