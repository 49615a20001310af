// The form: which game, who plays blue, who plays purple, and whether the reader takes one of the players.
import type { RoomPlayers, Start } from "../api";
import { PALETTES } from "../draw/palette";
import { element } from "../page/dom";
import { agentName } from "../page/view";
import type { Pitch } from "../replay/pitch";
import { rated } from "../site/format";
import { pageLink } from "../site/links";
import { field, select, sideMark } from "../site/parts";

/**
 * games: to choose from.   pitch: of the game that the address asks for.   asked: all that it asks for; missing parts
 * are chosen here.   onStart: the reader wants this match.
 */
export function setupForm(
  games: readonly string[],
  pitch: Pitch,
  players: RoomPlayers,
  asked: Start,
  onStart: (start: Start) => void,
): HTMLFormElement {
  const list = element("datalist", { id: "room-players" });
  for (const { repo, rating } of players.players) {
    list.append(element("option", { value: repo }, rating === null ? "" : `rated ${rated(rating, null)}`));
  }
  const blue = picker(asked.blue || likely(players, asked.purple));
  const purple = picker(asked.purple || likely(players, blue.value));
  const seed = element("input", {
    inputmode: "numeric",
    pattern: "[0-9]{1,16}",
    placeholder: "any",
    autocomplete: "off",
  });
  seed.value = asked.seed === null ? "" : String(asked.seed);
  const seat = element("select", {});
  for (const [value, label] of [["", "Nobody, I watch"], ...seats(pitch)]) {
    seat.append(element("option", { value, selected: value === String(asked.person ?? "") }, label));
  }
  const options = games.map((env) => [env, env] as const);
  const game = select(options, asked.env, (env) => location.assign(pageLink("room", { env })));
  // Who comes by a link with a seat has nothing left to choose.
  const seated = asked.person !== null;
  const start = element("button", { type: "submit", class: "button primary", autofocus: seated }, "Start");
  const swap = element("button", { type: "button", class: "button" }, "Swap the two");
  swap.addEventListener("click", () => ([blue.value, purple.value] = [purple.value, blue.value]));
  const root = element(
    "form",
    { class: "room-form" },
    list,
    field("Game", game),
    labelled("blue", "Blue", blue),
    labelled("purple", "Purple", purple),
    field("I play", seat),
    field("Seed", seed),
    element("div", { class: "room-buttons" }, start, swap),
  );
  const read = (): Start => ({
    blue: blue.value.trim(),
    purple: purple.value.trim(),
    env: asked.env,
    seed: /^\d{1,16}$/.test(seed.value) ? Number(seed.value) : null,
    person: seat.value === "" ? null : Number(seat.value),
  });
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    onStart(read());
  });
  return root;
}

/** Whom a reader may play, team by team. */
function seats(pitch: Pitch): [value: string, label: string][] {
  const numbers = [...pitch.scenery.agents.keys()];
  const sorted = numbers.sort((a, b) => pitch.scenery.agents[a].team - pitch.scenery.agents[b].team);
  return sorted.map((i) => [String(i), `Player ${i + 1}, ${agentName(pitch, PALETTES[0], i)}`]);
}

/** The best model but the one that plays already; a built-in player where there is none. */
function likely({ players }: RoomPlayers, other: string): string {
  const models = players.filter(({ house }) => !house);
  const found = [...models, ...players].find(({ repo }) => repo !== other.replace(/@.*/, ""));
  return found?.repo ?? "";
}

function picker(value: string): HTMLInputElement {
  const made = element("input", {
    list: "room-players",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    pattern: "[\\w.\\-]+/[\\w.\\-]+(@[0-9a-f]{7,40})?",
    title: "owner/name, as in the leaderboard",
  });
  made.value = value;
  // The list of suggestions is filtered by what stands in the field: empty it to see all.
  made.addEventListener("focus", () => made.select());
  return made;
}

function labelled(side: "blue" | "purple", name: string, control: HTMLElement): HTMLElement {
  return element(
    "label",
    { class: "field grow" },
    element("span", { class: "side-name" }, sideMark(side), name),
    control,
  );
}
