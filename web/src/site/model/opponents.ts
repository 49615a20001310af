// Parts of the model page about whom it met and how that went.
import { element } from "../../page/dom";
import { expectedChart } from "../charts/marks";
import { count, percent, plural, rated, seconds, short, signed } from "../format";
import { compareHref } from "../links";
import { box, modelCell, note, outcome, playerCell, shareBar, sideName, timeAgo, watchLink, type Content } from "../parts";
import { placeholder } from "../shell";
import type { HeadToHead, MatchLine, NextOpponent, Performance, RevisionComparison, StrengthBin } from "../../api";
import { DataTable } from "../table";

export function againstBox(bins: readonly StrengthBin[]): HTMLElement {
  const text = "Whether it does better against the strong or against the weak than one number says.";
  const content = bins.some((bin) => bin.games > 0)
    ? expectedChart(bins)
    : placeholder("No rated games yet", ["The chart fills as opponents of different strength are met."]);
  return box("Expected and actual score", text, content);
}

export function opponentsBox(repo: string, shown: Performance): HTMLElement {
  const text =
    "Points taken from each opponent, with a 95 % interval over mirrored pairs, and what the ratings predict.";
  if (!shown.head_to_head.length) {
    return box(
      "Head to head",
      text,
      placeholder("No opponents yet", ["Games appear here as soon as they are played."]),
    );
  }
  const table = new DataTable(
    {
      label: "Head to head",
      limit: 15,
      columns: [
        {
          name: "Opponent",
          header: true,
          by: (line: HeadToHead) => line.opponent.rating,
          descending: true,
          cell: (line) => playerCell(line.opponent),
        },
        { name: "Games", numeric: true, descending: true, by: (line) => line.games, cell: (line) => count(line.games) },
        { name: "Results", optional: true, cell: (line) => shareBar(line.wins, line.draws, line.losses) },
        {
          name: "Points",
          numeric: true,
          descending: true,
          by: (line) => line.share,
          cell: (line) => percent(line.share),
        },
        {
          name: "Interval",
          numeric: true,
          optional: true,
          cell: (line) => `${percent(line.low)} to ${percent(line.high)}`,
        },
        {
          name: "Expected",
          numeric: true,
          descending: true,
          by: (line) => line.expected,
          cell: (line) => percent(line.expected),
        },
        { name: "Compare", optional: true, cell: (line) => compareLink(repo, line.opponent.repo, shown.env) },
      ],
    },
    shown.head_to_head,
  );
  return box("Head to head", text, table.root);
}

function compareLink(repo: string, opponent: string, env: string): Content {
  const href = compareHref(opponent, repo, env);
  if (href === null) return "–";
  return element("a", { href, "aria-label": `Compare with ${opponent}` }, "Compare");
}

export function matchesBox(title: string, text: string, lines: readonly MatchLine[]): HTMLElement {
  if (!lines.length) return box(title, text, placeholder("None yet"));
  const table = new DataTable(
    {
      label: title,
      limit: 10,
      columns: [
        { name: "Opponent", header: true, cell: (line: MatchLine) => playerCell(line.opponent) },
        { name: "Result", cell: resultCell },
        { name: "Side", optional: true, cell: (line) => sideName(line.side) },
        { name: "Length", numeric: true, optional: true, cell: (line) => seconds(line.duration_s) },
        { name: "When", optional: true, cell: (line) => timeAgo(line.at_ms) },
        { name: "Match", cell: watchLink },
      ],
    },
    lines,
  );
  return box(title, text, table.root);
}

function resultCell(line: MatchLine): HTMLElement {
  const marks = [
    line.forfeit ? "forfeit" : `${line.score[0]} : ${line.score[1]}`,
    ...(line.rated ? [] : ["not rated"]),
  ];
  return element("span", { class: "model" }, outcome(line.outcome), element("small", {}, marks.join(", ")));
}

export function nextBox(repo: string, shown: Performance): HTMLElement {
  const parts: HTMLElement[] = [];
  if (shown.play_next.length) parts.push(nextTable(shown.play_next));
  else parts.push(placeholder("Nothing to suggest yet", ["Suggestions need a first rating."]));
  if (shown.revision_comparisons.length) parts.push(element("h3", {}, "Newer revisions against older ones"));
  for (const each of shown.revision_comparisons) parts.push(revisionLine(each));
  const href = compareHref(repo, repo, shown.env);
  if (shown.revision_comparisons.length && href !== null) {
    parts.push(note(element("a", { href }, "Compare the last two revisions")));
  }
  return box("What to play next", "The opponents that would teach the ratings most.", ...parts);
}

function nextTable(lines: readonly NextOpponent[]): HTMLElement {
  return new DataTable(
    {
      label: "Opponents to play next",
      limit: 5,
      columns: [
        {
          name: "Opponent",
          header: true,
          cell: (line: NextOpponent) =>
            modelCell(line.opponent.repo, ` · ${rated(line.opponent.rating, line.opponent.half_width)}`),
        },
        { name: "Why", cell: (line) => line.sentence },
        { name: "Games so far", numeric: true, optional: true, cell: (line) => count(line.games) },
      ],
    },
    lines,
  ).root;
}

function revisionLine({ newer, older, difference, half_width, test }: RevisionComparison): HTMLElement {
  const kind = { better: "good", "not better": "bad", worse: "bad", undecided: "wait" }[test.state];
  const ratings = difference === null ? "" : ` Ratings: ${signed(difference)} ± ${Math.round(half_width ?? 0)} points.`;
  const head = element("strong", {}, `${short(newer)} against ${short(older)}: ${test.state}`);
  const text = element("p", {}, `${test.sentence}${ratings} ${plural(test.pairs, "mirrored pair")} between them.`);
  return element("div", { class: `verdict ${kind}` }, head, text);
}
