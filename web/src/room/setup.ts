// The form: who plays blue, who plays purple, and whether the reader takes one of the four players.
import type { RoomPlayers, Start } from "../api";
import { element } from "../page/dom";
import { rated } from "../site/format";
import { field, sideMark } from "../site/parts";

const BUILT_IN = ["palus/goalie-striker", "palus/ball-chaser"] as const;
/** Whom a reader may play. */
export const AGENTS = [0, 1, 2, 3] as const;
/** By agent: 0 and 2 are blue, 1 and 3 purple. */
const SEATS: readonly (readonly [value: string, label: string])[] = [
  ["", "Nobody, I watch"],
  ["0", "Player 1, blue"],
  ["2", "Player 3, blue"],
  ["1", "Player 2, purple"],
  ["3", "Player 4, purple"],
];

export interface Setup {
  readonly root: HTMLFormElement;
  /** What the form says now. */
  read(): Start;
}

/** asked: what the address asks for; its missing parts are chosen here. onStart: the reader wants this match. */
export function setupForm(players: RoomPlayers, asked: Start, onStart: (start: Start) => void): Setup {
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
  for (const [value, label] of SEATS) {
    seat.append(element("option", { value, selected: value === String(asked.person ?? "") }, label));
  }
  // Who comes by a link with a seat has nothing left to choose.
  const seated = asked.person !== null;
  const start = element("button", { type: "submit", class: "button primary", autofocus: seated }, "Start");
  const swap = element("button", { type: "button", class: "button" }, "Swap the two");
  swap.addEventListener("click", () => ([blue.value, purple.value] = [purple.value, blue.value]));
  const root = element(
    "form",
    { class: "room-form" },
    list,
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
    person: AGENTS.find((agent) => String(agent) === seat.value) ?? null,
  });
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    onStart(read());
  });
  return { root, read };
}

/** The best model but the one that plays already; a built-in player where there is none. */
function likely({ players }: RoomPlayers, other: string): string {
  const models = players.filter(({ house }) => !house).map(({ repo }) => repo);
  return [...models, ...BUILT_IN].find((repo) => repo !== other.replace(/@.*/, "")) ?? "";
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
