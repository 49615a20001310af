// Two models side by side: is the second better, what the ratings say, and the games between them.
import { element } from "../../page/dom";
import { differenceChart, testChart } from "../charts/marks";
import { comparable, load, path } from "../data";
import { count, percent, plural, rated, seconds, signed } from "../format";
import { pageLink, parameter } from "../links";
import {
  box,
  chooseEnvironment,
  environmentField,
  facts,
  field,
  note,
  outcome,
  select,
  shareBar,
  sideName,
  timeAgo,
  watchLink,
} from "../parts";
import { anewAfterBack, buildShell, fill, heading, placeholder } from "../shell";
import type { Comparison, Leaderboard, MatchLine, SequentialTest } from "../../api";
import { DataTable } from "../table";

const shell = buildShell("compare");
anewAfterBack();
void fill(shell.content, async () => {
  const { all, env } = await chooseEnvironment();
  const board = env === null ? null : await load<Leaderboard>(path("leaderboard", env));
  if (env === null || !board || board.rows.length === 0) return [title(), noModels()];
  const repos = comparable(env, ...board.rows.map((row) => row.repo));
  const another = (than: string | null) => repos.find((repo) => repo !== than) ?? repos[0] ?? "";
  const b = parameter("b") ?? another(parameter("a"));
  const a = parameter("a") ?? another(b);
  const result = element("div", { class: "content-part" });
  void fill(result, async () => build(await load<Comparison>(path("compare", env, ...a.split("/"), ...b.split("/")))));
  return [title(), picker(repos, a, b, env, environmentField(all, env, "a", "b")), result];
});

function title(): HTMLElement {
  return heading(
    "Compare",
    "Is the second model better than the first? The same model twice compares its last two revisions.",
  );
}

function noModels(): HTMLElement {
  const text = "A comparison needs two ranked models. What waits, and why, is on the page ";
  return element(
    "section",
    { class: "box" },
    placeholder("No ranked models yet", [text, element("a", { href: pageLink("status") }, "Status")]),
  );
}

function picker(repos: readonly string[], a: string, b: string, env: string, environments: HTMLElement): HTMLElement {
  const listed = [...new Set([...repos, a, b])].sort((one, other) => one.localeCompare(other));
  const options = listed.map((repo) => [repo, repo] as const);
  const open = (first: string, second: string) => location.assign(pageLink("compare", { a: first, b: second, env }));
  const swap = element("button", { class: "button", type: "button" }, "Swap");
  swap.addEventListener("click", () => open(b, a));
  return element(
    "div",
    { class: "bar" },
    field(
      "First",
      select(options, a, (value) => open(value, b)),
      true,
    ),
    swap,
    field(
      "Second",
      select(options, b, (value) => open(a, value)),
      true,
    ),
    environments,
  );
}

function build(comparison: Comparison): Node[] {
  const { a, b, head_to_head: games } = comparison;
  const numbers = facts([
    { name: "First", value: rated(a.rating, a.half_width), under: a.repo },
    { name: "Second", value: rated(b.rating, b.half_width), under: b.repo },
    { name: "Difference", value: signed(comparison.difference), under: "second minus first, points" },
    { name: "Expected of the second", value: percent(comparison.expected), under: "of the points, by ratings" },
    {
      name: "Scored by the second",
      value: games.games ? percent(games.share) : "–",
      under: plural(games.games, "game"),
    },
  ]);
  const columns = element("div", { class: "columns" }, ownGames(comparison), difference(comparison));
  return [verdict(comparison), numbers, columns, headToHead(comparison)];
}

function testText(test: SequentialTest): string {
  return `${plural(test.pairs, "mirrored pair")}; tests ${signed(test.elo1)} against ${signed(test.elo0)} points at error rates of ${percent(test.alpha)}.`;
}

function verdict(comparison: Comparison): HTMLElement {
  const lines = [element("strong", {}, comparison.verdict)];
  if (comparison.caution !== null) lines.push(element("p", {}, comparison.caution));
  return element("section", { class: "verdict wait", "aria-label": "Verdict" }, ...lines);
}

/** The sequential test, whose question is narrower than the page's: a lead of so many points in these games. */
function ownGames({ test }: Comparison): HTMLElement {
  const kind = { better: "good", "not better": "bad", worse: "bad", undecided: "wait" }[test.state];
  const head = {
    better: "Their own games: the second is better",
    worse: "Their own games: the first is better",
    "not better": `Their own games: the second is not ${test.elo1} points better`,
    undecided: "Their own games: not decided yet",
  }[test.state];
  const lines = [element("strong", {}, head), element("p", {}, test.sentence)];
  const card = element("div", { class: `verdict ${kind}` }, ...lines);
  return box("Sequential test", testText(test), card, testChart(test));
}

function difference(comparison: Comparison): HTMLElement {
  const text = "Against everybody: from the joint fit of all matches, opponents' opponents included; with its own 95 % interval.";
  if (comparison.difference === null || comparison.half_width === null) {
    return box("Difference in rating", text, placeholder("Not rated yet", ["One of the two has no rated games."]));
  }
  const separate = Math.abs(comparison.difference) > comparison.half_width;
  const words = separate
    ? "The interval leaves out zero: the ratings separate the two."
    : "The interval includes zero: the ratings do not separate the two.";
  return box("Difference in rating", text, differenceChart(comparison.difference, comparison.half_width), note(words));
}

function headToHead(comparison: Comparison): HTMLElement {
  const { head_to_head: games, a, b } = comparison;
  if (games.games === 0) {
    const text = `${a.name} and ${b.name} have not met. The difference above comes from common opponents.`;
    return box("Games between the two", "", placeholder("No games yet", [text]));
  }
  const interval = `${percent(games.share)} of the points, 95 % interval ${percent(games.low)} to ${percent(games.high)} over mirrored pairs.`;
  const table = new DataTable(
    {
      label: `Games of ${b.repo} against ${a.repo}`,
      limit: 30,
      columns: [
        { name: "Result", header: true, cell: (line: MatchLine) => outcome(line.outcome) },
        { name: "Side", cell: (line) => sideName(line.side) },
        { name: "Score", cell: (line) => `${line.score[0]} : ${line.score[1]}` },
        {
          name: "Length",
          numeric: true,
          optional: true,
          by: (line) => line.duration_s,
          cell: (line) => seconds(line.duration_s),
        },
        {
          name: "When",
          optional: true,
          descending: true,
          by: (line) => line.at_ms,
          cell: (line) => timeAgo(line.at_ms),
        },
        { name: "Match", cell: watchLink },
      ],
      rowClass: (line) => line.outcome,
    },
    comparison.matches,
  );
  const bar = shareBar(games.wins, games.draws, games.losses);
  const listed = comparison.matches.length;
  const newest = listed < games.games ? ` The newest ${count(listed)} of ${plural(games.games, "game")} are listed.` : "";
  return box("Games between the two", `Seen from ${b.repo}: ${interval}${newest}`, bar, table.root);
}
