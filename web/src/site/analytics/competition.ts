// The competition as a whole: how many matches, when, how they end.
import { element } from "../../page/dom";
import { histogram } from "../charts/bars";
import { cumulativeChart } from "../charts/series";
import { count, percent, seconds } from "../format";
import { box, facts, modelCell, shareBar, sideMark, timeAgo } from "../parts";
import { placeholder } from "../shell";
import type { Analytics, CauseCount, TeamLine } from "../../api";
import { DataTable } from "../table";

export function competition(analytics: Analytics): Node[] {
  const numbers = facts([
    { name: "Rated matches", value: count(analytics.matches), under: `of ${count(analytics.logged)} in the log` },
    { name: "Models", value: count(analytics.models), under: "that played one" },
    { name: "Season", value: String(analytics.season) },
    { name: "Mean length", value: seconds(analytics.mean_duration_s) },
  ]);
  if (!analytics.days.length) return [numbers, element("section", { class: "box" }, placeholder("No rated match yet"))];
  const ends = element(
    "div",
    { class: "columns thirds" },
    lengths(analytics),
    sides(analytics),
    causes(analytics.causes),
  );
  return [
    numbers,
    box("Rated matches so far", "Cumulative, day by day.", cumulativeChart(analytics.days)),
    ends,
    teams(analytics.teams),
  ];
}

function lengths(analytics: Analytics): HTMLElement {
  const label = `Length of matches in bins of ${analytics.duration_bin_s} seconds`;
  return box(
    "Length of matches",
    "Seconds until the match ended.",
    histogram(label, analytics.duration_bins, analytics.duration_bin_s, "s"),
  );
}

function sides({ blue_wins: blue, draws, purple_wins: purple }: Analytics): HTMLElement {
  const all = Math.max(1, blue + draws + purple);
  const line = (mark: Node | string, name: string, value: number) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, mark, ` ${name}`),
      element("td", { class: "number" }, count(value)),
      element("td", { class: "number" }, percent(value / all, 1)),
    );
  const table = element("table", { "aria-label": "Results by side" });
  table.append(
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ...["Result", "Matches", "Share"].map((name, i) =>
          element("th", { scope: "col", class: i ? "number" : "" }, name),
        ),
      ),
    ),
    element(
      "tbody",
      {},
      line(sideMark("blue"), "Blue won", blue),
      line("", "Draw", draws),
      line(sideMark("purple"), "Purple won", purple),
    ),
  );
  return box("By side", "A fair field gives both sides the same.", table);
}

function causes(lines: readonly CauseCount[]): HTMLElement {
  const table = new DataTable(
    {
      label: "How matches ended",
      columns: [
        { name: "Ended by", header: true, cell: (line: CauseCount) => line.cause.replaceAll("_", " ") },
        { name: "Matches", numeric: true, cell: (line) => count(line.matches) },
      ],
    },
    lines,
  );
  return box("How matches ended", "", table.root);
}

function teams(lines: readonly TeamLine[]): HTMLElement {
  const table = new DataTable(
    {
      label: "All teams",
      limit: 25,
      columns: [
        {
          name: "Team",
          header: true,
          by: (line: TeamLine) => line.team.toLowerCase(),
          cell: (line) => modelCell(line.team),
        },
        { name: "Results", optional: true, cell: (line) => shareBar(line.wins, line.draws, line.losses) },
        { name: "Wins", numeric: true, descending: true, by: (line) => line.wins, cell: (line) => count(line.wins) },
        { name: "Draws", numeric: true, descending: true, by: (line) => line.draws, cell: (line) => count(line.draws) },
        {
          name: "Losses",
          numeric: true,
          descending: true,
          by: (line) => line.losses,
          cell: (line) => count(line.losses),
        },
        {
          name: "Win rate",
          numeric: true,
          descending: true,
          by: (line) => line.win_rate,
          cell: (line) => `${line.win_rate.toFixed(2)} %`,
        },
        { name: "Since", optional: true, by: (line) => line.since_ms, cell: (line) => timeAgo(line.since_ms) },
      ],
    },
    lines,
  );
  return box("All teams", "Every repository that ever played a rated match.", table.root);
}
