// Entry of the demo room: choose two players, watch them play now, or play along.
import type { Ready, RoomGames, RoomPlayers, Start } from "../api";
import { copy, element } from "../page/dom";
import { agentName } from "../page/view";
import { PALETTES } from "../draw/palette";
import { pitchNamed, type Pitch } from "../replay/pitch";
import { load, LoadError, path } from "../site/data";
import { parameter, writeParameters } from "../site/links";
import { box, definitions, note } from "../site/parts";
import { anewAfterBack, buildShell, fill, heading } from "../site/shell";
import { gameKey, gameKeys } from "./controls";
import { Game } from "./game";
import { MOVES } from "./pad";
import { setupForm } from "./setup";
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
  const { games } = await load<RoomGames>(path("room", "games"));
  const { env, pitch } = chosen(games);
  const asked = askedFor(env, pitch);
  const players = await load<RoomPlayers>(path("room", "players", env));
  const names = games.map((each) => each.env);
  const setup = setupForm(names, pitch, players, asked, (start) => begin(start, pitch));
  const text = "Two models meet here and now. Take one of the players yourself if you like. Nothing here is rated.";
  // A link to a match that nobody plays shows it at once.
  if (asked.blue && asked.purple && asked.person === null) begin(asked, pitch);
  return [heading("Play", text), box("Who plays?", "", setup), place, help(pitch)];
});

/** The game that the address asks for, else the first, and where it is played. */
function chosen(games: RoomGames["games"]): { env: string; pitch: Pitch } {
  const asked = parameter("env");
  const found = games.find(({ env }) => asked === null || env === asked);
  const pitch = found ? pitchNamed(found.pitch) : null;
  if (!found || pitch === null) {
    const names = games.map(({ env }) => env).join(" and ");
    throw new LoadError(`${asked ?? "This game"} is not played in this room; there are ${names}.`, 404);
  }
  return { env: found.env, pitch };
}

function askedFor(env: string, pitch: Pitch): Start {
  const seed = parameter("seed");
  const person = Number(parameter("play"));
  return {
    blue: parameter("blue") ?? "",
    purple: parameter("purple") ?? "",
    env,
    seed: seed !== null && /^\d{1,16}$/.test(seed) ? Number(seed) : null,
    // In links players count from 1, as on the pitch.
    person: pitch.scenery.agents[person - 1] ? person - 1 : null,
  };
}

function begin(start: Start, pitch: Pitch): void {
  game?.close();
  let seed = start.seed;
  const current = new Game(start, pitch, {
    ready(ready) {
      seed = ready.seed;
      showLink(ready);
      place.scrollIntoView({ block: "start" });
    },
    again: (sameSeed) => begin({ ...start, seed: sameSeed ? seed : null }, pitch),
    copyLink: () => copy(location.href),
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
  if (game.move(event, true) || gameKey(game, event)) event.preventDefault();
});
document.addEventListener("keyup", (event) => game?.move(event, false));
window.addEventListener("blur", () => game?.release());
document.addEventListener("visibilitychange", () => {
  if (document.hidden && game?.playing) game.togglePause();
});
window.addEventListener("pagehide", () => game?.close());
anewAfterBack();

function help(pitch: Pitch): HTMLElement {
  const { agents } = pitch.scenery;
  const moves = MOVES.map(({ keys, name }): [string, Node] => [name, keyText(keys)]);
  const others = gameKeys(agents.length).map(([key, does]): [string, Node] => [does, keyText(key)]);
  return element(
    "div",
    { class: "columns" },
    box(
      "Your player",
      "",
      note(
        "Directions are as your player sees them: forward is where its white beak points. It may do three things at once.",
      ),
      note(`${kicking(pitch)} The golden ring is yours; in 3-D you look over its shoulder.`),
      definitions(moves),
    ),
    box("Keys", "", definitions(others)),
  );
}

function kicking(pitch: Pitch): string {
  const { agents } = pitch.scenery;
  const always = agents.flatMap((agent, i) => (agent.kicks_always ? [agentName(pitch, PALETTES[0], i)] : []));
  const others = always.length ? ` ${always.join(" and ")} kicks it at every touch.` : "";
  return `Driving forward into the ball kicks it.${others}`;
}

function keyText(keys: string): HTMLElement {
  const parts = keys === "Space" || keys.includes(" to ") ? [keys] : keys.split(" ");
  return element("span", {}, ...parts.flatMap((part) => [element("kbd", {}, part), " "]));
}
