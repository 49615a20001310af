// Small pieces that several pages show.
import { element, svg } from "../page/dom";
import { ago, moment, percent, plural, rated } from "./format";
import { matchLink, modelLink, parameter, writeParameters } from "./links";
import { load } from "./data";
import type { Environment, Environments, MatchLine, MatchPage, Player } from "../api";

export type Content = Node | string;

export function box(title: string, text: string, ...content: Content[]): HTMLElement {
  const head = [element("h2", {}, title), ...(text ? [element("p", {}, text)] : [])];
  return element("section", { class: "box" }, element("header", {}, ...head), ...content);
}

export function note(...content: Content[]): HTMLElement {
  return element("p", { class: "note" }, ...content);
}

/** Name and owner of a repository, leading to its page. extra: what stands beside the owner. */
export function modelCell(repo: string, ...extra: Content[]): HTMLElement {
  const [owner = "", name = repo] = repo.split("/");
  return element(
    "span",
    { class: "model" },
    element("a", { href: modelLink(repo) }, name),
    element("small", {}, owner, ...extra),
  );
}

export function playerCell(player: Player): HTMLElement {
  return modelCell(player.repo, player.rating === null ? "" : ` · ${rated(player.rating, player.half_width)}`);
}

export function tag(text: string, kind: "" | "good" | "bad" | "wait" = "", title = ""): HTMLElement {
  return element("span", { class: kind ? `tag ${kind}` : "tag", ...(title && { title }) }, text);
}

const OUTCOMES: Record<MatchLine["outcome"], string> = { win: "Win", draw: "Draw", loss: "Loss", void: "Void" };

/** Tells an outcome by word, shape and colour. */
export function outcome(result: MatchLine["outcome"]): HTMLElement {
  return element("span", { class: `result ${result}` }, OUTCOMES[result]);
}

/** Blue is a circle and purple a diamond, as on the pitch. */
export function sideName(side: MatchLine["side"], sides: MatchPage["sides"] = ["", ""]): HTMLElement {
  return element("span", { class: "side-name" }, sideMark(side), sideWords(side, sides));
}

/** sides: what blue and purple are, empty where both are the same. */
export function sideWords(side: MatchLine["side"], sides: MatchPage["sides"]): string {
  const [colour, what] = side === "blue" ? ["Blue", sides[0]] : ["Purple", sides[1]];
  return what === "" ? colour : `${colour}, ${what}`;
}

export function sideMark(side: MatchLine["side"]): SVGElement {
  const shape =
    side === "blue" ? svg("circle", { cx: "12", cy: "12", r: "8.5" }) : svg("path", { d: "M12 2 22 12 12 22 2 12z" });
  const name = side === "blue" ? "team-mark" : "team-mark team-1";
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: name }, shape);
}

/** A time that tells how long ago, and when exactly to whoever points at it. */
export function timeAgo(ms: number | null): Content {
  if (ms === null) return ago(null);
  return element("time", { datetime: new Date(ms).toISOString(), title: moment(ms) }, ago(ms));
}

export interface Fact {
  readonly name: string;
  readonly value: Content;
  readonly under?: string;
}

/** Longer values are set smaller. */
const LONG = 14;

export function facts(entries: readonly Fact[]): HTMLElement {
  const cells = entries.map(({ name, value, under }) =>
    element(
      "div",
      {},
      element("dt", {}, name),
      element("dd", { class: typeof value === "string" && value.length > LONG ? "words" : "" }, value),
      ...(under ? [element("dd", { class: "small" }, under)] : []),
    ),
  );
  return element("dl", { class: "facts" }, ...cells);
}

export function definitions(entries: readonly (readonly [string, Content])[]): HTMLElement {
  const parts = entries.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  return element("dl", { class: "list" }, ...parts);
}

/** Wins, draws and losses as one bar, with the numbers in words. */
export function shareBar(wins: number, draws: number, losses: number): HTMLElement {
  const games = Math.max(1, wins + draws + losses);
  const label = `${plural(wins, "win")}, ${plural(draws, "draw")}, ${plural(losses, "loss", "losses")}`;
  const bar = element("div", { class: "share", role: "img", "aria-label": label, title: label });
  const parts = [
    ["bar-win", wins],
    ["bar-draw", draws],
    ["bar-loss", losses],
  ] as const;
  for (const [name, value] of parts) {
    const part = element("span", { class: name });
    part.style.setProperty("--part", String(value / games));
    bar.append(part);
  }
  return bar;
}

export function field(label: string, control: HTMLElement, grow = false): HTMLElement {
  return element("label", { class: grow ? "field grow" : "field" }, label, control);
}

export function select(
  options: readonly (readonly [value: string, label: string])[],
  chosen: string | null,
  change: (value: string) => void,
): HTMLSelectElement {
  const list = element("select");
  for (const [value, label] of options) {
    list.append(element("option", { value, selected: value === chosen }, label));
  }
  list.addEventListener("change", () => change(list.value));
  return list;
}

/** A row of buttons of which one is pressed. */
export function switcher(
  label: string,
  options: readonly (readonly [value: string, label: string])[],
  chosen: string,
  change: (value: string) => void,
): HTMLElement {
  const buttons = options.map(([value, text]) => {
    const button = element("button", { type: "button", "aria-pressed": String(value === chosen) }, text);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      change(value);
    });
    return button;
  });
  return element("div", { class: "switch", role: "group", "aria-label": label }, ...buttons);
}

/** A link to where a match can be watched, or its record read where nothing else is kept. what: that it leads to. */
export function watchLink(line: Pick<MatchLine, "id" | "has_replay">, what = `match ${line.id}`): HTMLElement {
  const text = line.has_replay ? "Watch" : "Record";
  return element("a", { href: matchLink(line.id), "aria-label": `${text} ${what}` }, text);
}

/** The environments ranked here and the one that the address asks for (else the first); null when there is none. */
export async function chooseEnvironment(): Promise<{ all: readonly Environment[]; env: string | null }> {
  const { environments } = await load<Environments>("envs");
  const asked = parameter("env");
  const found = environments.find(({ env }) => env === asked) ?? environments[0];
  return { all: environments, env: found?.env ?? null };
}

/** Leads to the same page about another environment. but: parameters of the address that are about this one alone. */
export function environmentField(all: readonly Environment[], env: string, ...but: string[]): HTMLElement {
  const options = all.map((each) => [each.env, `${each.env} (${plural(each.models, "model")})`] as const);
  const change = (value: string) => {
    writeParameters({ env: value, ...Object.fromEntries(but.map((name) => [name, null])) });
    location.reload();
  };
  const asked = parameter("env");
  const missing = asked !== null && asked !== env ? `: ${asked} is not played here` : "";
  return field(`Environment${missing}`, select(options, env, change));
}

export function tallyText(games: number, share: number): string {
  return games === 0 ? "no games" : `${percent(share)} of ${plural(games, "game")}`;
}

/** What a process says of itself, nested or not, as one line. */
export function describe(facts: Readonly<Record<string, unknown>>): string {
  const flat = Object.entries(facts).flatMap(([key, value]) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.entries(value)
      : [[key, value] as const],
  );
  return flat.map(([key, value]) => `${key} ${Array.isArray(value) ? value.join(" and ") : String(value)}`).join(", ");
}

/** How far a revision got. */
export function stateTag(state: string): HTMLElement {
  const kinds = { accepted: "good", refused: "bad", pending: "wait", waiting: "wait" } as const;
  return tag(state, state in kinds ? kinds[state as keyof typeof kinds] : "");
}
