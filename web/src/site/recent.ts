// The newest matches, growing at the top while the page is open.
import { element } from "../page/dom";
import { seconds } from "./format";
import { modelCell, sideName, timeAgo, watchLink, type Content } from "./parts";
import { placeholder } from "./shell";
import type { MatchSummary } from "../api";
import { Listed, type Column } from "./table";

const MOST = 12;

const RESULTS: Record<MatchSummary["result"], string> = {
  win1: "Blue won",
  win2: "Purple won",
  draw: "Draw",
  forfeit1: "Blue forfeited",
  forfeit2: "Purple forfeited",
  void: "Void",
};

export function verdictText(result: MatchSummary["result"]): string {
  return RESULTS[result];
}

/** A cell with a side's mark and its model. */
function sided(side: "blue" | "purple", repo: string): Content {
  const name = sideName(side);
  name.classList.add("wraps");
  name.lastChild?.replaceWith(element("span", { class: "visually-hidden" }, name.textContent ?? ""), modelCell(repo));
  return name;
}

const COLUMNS: readonly Column<MatchSummary>[] = [
  { name: "Blue", cell: (match) => sided("blue", match.blue.repo) },
  { name: "Score", cell: (match) => `${match.score[0]} : ${match.score[1]}` },
  { name: "Purple", cell: (match) => sided("purple", match.purple.repo) },
  { name: "Result", optional: true, cell: (match) => verdictText(match.result) + (match.rated ? "" : ", not rated") },
  { name: "Length", optional: true, numeric: true, cell: (match) => seconds(match.duration_s) },
  { name: "When", optional: true, cell: (match) => timeAgo(match.at_ms) },
  {
    name: "Match",
    cell: (match) => watchLink(match, `${match.blue.repo} against ${match.purple.repo}, match ${match.id}`),
  },
];

export class RecentList {
  readonly root: HTMLElement;
  private readonly list: Listed<MatchSummary>;
  private readonly arrived = new Set<string>();

  constructor(private matches: readonly MatchSummary[]) {
    this.matches = matches.slice(0, MOST);
    this.list = new Listed(
      {
        label: "Newest matches",
        columns: COLUMNS,
        key: (match) => match.id,
        rowClass: (match) => (this.arrived.has(match.id) ? "arrived" : ""),
      },
      placeholder("No matches yet", ["The first ones start as soon as two models are accepted."]),
    );
    const head = element("header", {}, element("h2", {}, "Newest matches"));
    this.root = element("section", { class: "box" }, head, this.list.root);
    this.list.show(this.matches);
  }

  /** Matches in any order, known or not. */
  add(...matches: readonly MatchSummary[]): void {
    const known = new Set(this.matches.map(({ id }) => id));
    const fresh = matches.filter(({ id }) => !known.has(id));
    if (!fresh.length) return;
    this.matches = [...fresh, ...this.matches].sort((a, b) => b.seq - a.seq).slice(0, MOST);
    this.arrived.clear();
    for (const { id } of fresh) this.arrived.add(id);
    this.list.show(this.matches);
  }
}
