// The side column: matches of the file, legend of the sensors, and the events as text.
import { SEEN_COLOURS } from "../draw/palette";
import type { Seen } from "../game/rays";
import { scoreAt } from "../game/scene";
import type { Match } from "../replay/replay";
import { element, formatTime, setText, teamMark } from "./dom";
import { agentName, describeEvent, type Part, type View } from "./view";
import type { Viewer } from "./viewer";

/** Seconds before an event at which a click on it starts: long enough to see it coming. */
const LEAD_IN_S = { goal: 2, kick: 0.4 };

export function matchList(viewer: Viewer): Part {
  const buttons = viewer.replay.matches.map((match, i) => {
    const made = element(
      "button",
      { type: "button" },
      element("span", { class: "match-number" }, String(i + 1)),
      element("span", { class: "match-names" }, match.names[0], element("small", {}, " vs "), match.names[1]),
      element("b", {}, `${match.score[0]}:${match.score[1]}`),
    );
    made.addEventListener("click", () => viewer.selectMatch(i));
    return made;
  });
  const list = element("ol", {}, ...buttons.map((made) => element("li", {}, made)));
  const root = element("section", { class: "panel matches" }, element("h2", {}, "Matches"), list);
  root.hidden = buttons.length < 2;
  return {
    root,
    update: (view) =>
      buttons.forEach((made, i) => {
        if (markCurrent(made, i === view.matchIndex) && i === view.matchIndex) keepInSight(list, made);
      }),
  };
}

export function legend(): Part {
  const heading = element("h2", {});
  const list = element("ul", {});
  const root = element("section", { class: "panel legend" }, heading, list);
  let shown: number | null = null;
  return {
    root,
    update({ match: { pitch }, palette, raysOf }: View): void {
      root.hidden = raysOf === null;
      if (raysOf === null) return;
      setText(heading, `What ${agentName(pitch, palette, raysOf)} senses`);
      if (raysOf === shown) return;
      shown = raysOf;
      list.replaceChildren(...[...pitch.scenery.agents[raysOf].tags, "nothing" as const].map(legendItem));
    },
  };
}

function legendItem(seen: Seen): HTMLElement {
  const swatch = element("i", { class: seen === "nothing" ? "swatch hollow" : "swatch" });
  swatch.style.color = SEEN_COLOURS[seen];
  return element("li", {}, swatch, seen);
}

export function eventList(viewer: Viewer): Part {
  const list = element("ol", {});
  const root = element("section", { class: "panel events" }, element("h2", {}, "Events"), list);
  let shownKey = "";
  let items: HTMLButtonElement[] = [];
  return {
    root,
    update(view: View): void {
      const key = `${view.matchIndex} ${view.palette.id}`;
      if (key !== shownKey) {
        shownKey = key;
        items = view.match.events.map((_, i) => eventItem(viewer, view, i));
        const empty = element("li", { class: "empty" }, "Nothing happened in this match.");
        list.replaceChildren(...(items.length ? items.map((item) => element("li", {}, item)) : [empty]));
      }
      const current = view.match.events.findLastIndex((event) => event.tick <= view.player.tick + 1e-6);
      items.forEach((item, i) => {
        if (markCurrent(item, i === current) && i === current) keepInSight(list, item);
      });
    },
  };
}

function eventItem(viewer: Viewer, view: View, index: number): HTMLButtonElement {
  const event = view.match.events[index];
  const at = event.tick / view.match.frameHz;
  const made = element(
    "button",
    { type: "button", class: event.kind },
    element("time", {}, formatTime(at)),
    teamMark(event.team),
    element("span", {}, describeEvent(view, event)),
  );
  if (event.kind === "goal") made.append(element("b", {}, scoreLine(view.match, event.tick)));
  made.addEventListener("click", () => viewer.seek(at - LEAD_IN_S[event.kind]));
  return made;
}

function scoreLine(match: Match, tick: number): string {
  return scoreAt(match, tick).join(":");
}

/** Returns whether the mark changed. */
function markCurrent(item: HTMLElement, current: boolean): boolean {
  if ((item.getAttribute("aria-current") === "true") === current) return false;
  item.setAttribute("aria-current", String(current));
  return true;
}

/** Scrolls the list alone, never the page; the style sheet makes it the offset parent of its rows. */
function keepInSight(list: HTMLElement, item: HTMLElement): void {
  const row = item.parentElement!;
  const top = row.offsetTop;
  if (top < list.scrollTop || top + row.offsetHeight > list.scrollTop + list.clientHeight) {
    list.scrollTop = top - list.clientHeight / 2;
  }
}
