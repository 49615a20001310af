// Where the viewer's parts stand on the page.
import { agentCards } from "./agents";
import { controls } from "./controls";
import { element } from "./dom";
import { eventList, legend, matchList } from "./lists";
import { bigPlayButton, goalBanner } from "./overlays";
import { scoreboard } from "./scoreboard";
import { seekbar } from "./seekbar";
import type { Part } from "./view";
import type { Viewer } from "./viewer";

/** What the viewer made itself. */
interface Own {
  readonly stage: HTMLElement;
  readonly notice: HTMLElement;
  readonly announcer: HTMLElement;
  readonly help: HTMLElement;
}

/** Fill `root`; returns the parts that follow the match. embedded: the page has a heading and a main region already. */
export function layOut(viewer: Viewer, root: HTMLElement, embedded: boolean, own: Own): Part[] {
  const over = [goalBanner(), bigPlayButton(viewer)];
  const board = scoreboard();
  const under = [seekbar((seconds) => viewer.seek(seconds)), controls(viewer), agentCards(viewer, viewer.replay.pitch)];
  const side = [matchList(viewer), legend(), eventList(viewer)];
  own.stage.append(...over.map((part) => part.root), own.notice);
  const title = element(embedded ? "h2" : "h1", { class: "replay-title" }, viewer.replay.title);
  root.replaceChildren(
    element(embedded ? "div" : "header", { class: "top" }, title, board.root),
    element(embedded ? "div" : "main", { class: "watch" }, own.stage, ...under.map((part) => part.root)),
    element("section", { class: "details", "aria-label": "Details" }, ...side.map((part) => part.root)),
    own.announcer,
    own.help,
  );
  return [...over, board, ...under, ...side];
}
