// The frame around every page: navigation, the states of loading and failing, the sign that events arrive.
import "./site.css";
import { element, setText, svg } from "../page/dom";
import { isExport, load, LoadError } from "./data";
import { ago } from "./format";
import { focusedLink, focusLink } from "./focus";
import { pageLink, parameter, type PageName } from "./links";
import type { Head } from "../api";

const ENTRIES: readonly (readonly [PageName, string])[] = [
  ["index", "Leaderboard"],
  ["room", "Play"],
  ["matrix", "Win matrix"],
  ["compare", "Compare"],
  ["analytics", "Analytics"],
  ["status", "Status"],
];

const OLDER_MS = 30_000;

export interface Shell {
  /** Where the page puts its content. */
  readonly content: HTMLElement;
  /** The sign beside the navigation that events arrive; null: what is shown does not follow them. */
  connected(on: boolean | null): void;
}

/** Builds the frame of an arena's page. current: the entry of the navigation that leads here; null for pages below one. */
export function buildShell(current: PageName | null): Shell {
  const entries = ENTRIES.filter(([page]) => !isExport || page !== "room").map(([page, label]) =>
    element("a", { href: pageLink(page, { env: parameter("env") }), "aria-current": page === current && "page" }, label),
  );
  const nav = element("nav", { "aria-label": "Pages" }, ...entries);
  return buildFrame("palus arena", nav, footText(), logEnd());
}

/** The frame of any page: head with the brand and what stands beside it, content, foot. */
export function buildFrame(brandName: string, beside: Node, ...foot: (Node | string)[]): Shell {
  const content = element("main", { class: "content", id: "content", tabindex: "-1" });
  const live = element("span", { class: "live", role: "status", hidden: true });
  const brand = element("a", { class: "brand", href: pageLink("index") }, brandMark(), brandName);
  document.body.replaceChildren(
    element("a", { class: "skip", href: "#content" }, "Skip to the content"),
    element("header", { class: "masthead" }, element("div", {}, brand, beside, live)),
    content,
    element("footer", { class: "foot" }, element("p", {}, ...foot)),
  );
  window.setInterval(growOld, OLDER_MS);
  return {
    content,
    connected(on) {
      live.hidden = on === null;
      live.classList.toggle("on", on === true);
      live.textContent = on ? "Live" : "Not live";
    },
  };
}

/** For a page whose fields or match are those of another moment when the browser shows it again as it was left. */
export function anewAfterBack(): void {
  window.addEventListener("pageshow", (event) => event.persisted && location.reload());
}

/** Shows that something is loading, then what `build` returns, or why that failed. Returns whether it succeeded. */
export async function fill(target: HTMLElement, build: () => Promise<readonly Node[]>): Promise<boolean> {
  target.setAttribute("aria-busy", "true");
  if (!target.hasChildNodes()) target.append(placeholder("Loading …", [], true));
  try {
    const content = await build();
    const link = focusedLink(target);
    target.replaceChildren(...content);
    focusLink(target, link);
    return true;
  } catch (error) {
    if (!(error instanceof LoadError)) throw error;
    target.replaceChildren(failure(error, target.matches("main") ? "h1" : "strong"));
    return false;
  } finally {
    target.removeAttribute("aria-busy");
  }
}

/** A box in the place of content that is not there: says what to do next. */
export function placeholder(title: string, text: readonly (Node | string)[] = [], busy = false): HTMLElement {
  const parts: Node[] = busy ? [element("span", { class: "spinner" })] : [];
  parts.push(element("strong", {}, title));
  if (text.length) parts.push(element("p", {}, ...text));
  return element("div", { class: "placeholder", role: busy && "status" }, ...parts);
}

/** name: a page that shows nothing but this needs it as its heading. */
function failure(error: LoadError, name: "h1" | "strong"): HTMLElement {
  const title = error.status === 404 ? "Nothing here" : "This could not be loaded";
  const box = placeholder(title, [error.message]);
  box.querySelector("strong")?.replaceWith(element(name, {}, title));
  box.setAttribute("role", "alert");
  const again = element("button", { class: "button", type: "button" }, "Try again");
  again.addEventListener("click", () => location.reload());
  box.append(error.status === 404 ? element("a", { class: "button", href: pageLink("index") }, "Leaderboard") : again);
  return element("section", { class: "box" }, box);
}

/** Title of the page, for the reader and the browser's tab. */
export function heading(title: string, text: string | Node = "", ...beside: Node[]): HTMLElement {
  document.title = `${title} · palus arena`;
  const under = text === "" ? [] : [element("p", {}, text)];
  return element("div", { class: "title" }, element("div", {}, element("h1", {}, title), ...under), ...beside);
}

/** Times say how long ago they are, and pages stay open for days. */
function growOld(): void {
  for (const time of document.querySelectorAll<HTMLTimeElement>("time[datetime]")) {
    setText(time, ago(Date.parse(time.dateTime)));
  }
}

function brandMark(): SVGElement {
  const blue = svg("circle", { cx: "11", cy: "12", r: "8.5", class: "team-mark" });
  const purple = svg("path", { d: "M25 2.5 34.5 12 25 21.5 15.5 12z", class: "team-mark team-1" });
  return svg("svg", { viewBox: "0 0 36 24", "aria-hidden": "true" }, purple, blue);
}

/** Where the log ends: whoever notes it can tell later whether anything before was changed (`palus audit --head`). */
function logEnd(): HTMLElement {
  const end = element("span", { id: "log-end" });
  void load<Head>("head").then(
    (head) => {
      const words = isExport ? "It ends" : "When this page was opened it ended"; // the log and what is shown of it go on
      end.append(` ${words} with match ${head.seq}, hash `, element("code", {}, head.hash), ".");
      if (head.annulled) end.append(` Struck out: ${head.annulled}.`);
    },
    () => undefined, // the page itself says what is wrong
  );
  return end;
}

function footText(): string {
  const source = "Every number on these pages is computed from the arena's match log, which anyone can download.";
  return isExport ? `${source} This is a copy made at one moment; nothing here is live.` : source;
}
