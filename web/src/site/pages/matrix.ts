// Who beats whom: the win matrix, its cycles, and the models that the equilibrium keeps.
import { element } from "../../page/dom";
import { load, path } from "../data";
import { percent, plural, points, rated, signed } from "../format";
import { compareHref, modelLink, pageLink } from "../links";
import { box, chooseEnvironment, environmentField, facts, modelCell, note } from "../parts";
import { buildShell, fill, heading, placeholder } from "../shell";
import type { Cycle, Matrix, Player } from "../../api";
import { DataTable } from "../table";

/** Games at which a cell has half of its colour. */
const PALE_GAMES = 10;

const shell = buildShell("matrix");
void fill(shell.content, async () => {
  const { all, env } = await chooseEnvironment();
  const title = (...beside: Node[]) =>
    heading(
      "Win matrix",
      "Points that the model of each row took from the model of each column, and how many games say so.",
      ...beside,
    );
  if (env === null) return [title(), nothing()];
  const matrix = await load<Matrix>(path("matrix", env));
  const head = title(element("div", { class: "bar" }, environmentField(all, env)));
  if (matrix.players.length < 2) return [head, nothing()];
  return [head, overview(matrix), grid(matrix), element("div", { class: "columns" }, support(matrix), cycles(matrix))];
});

function nothing(): HTMLElement {
  const text =
    "The matrix appears once two models have played each other. Push a second model, or wait for the queue: ";
  const link = element("a", { href: pageLink("status") }, "status");
  return element("section", { class: "box" }, placeholder("Nothing to compare yet", [text, link]));
}

function overview(matrix: Matrix): HTMLElement {
  return facts([
    { name: "Models shown", value: String(matrix.players.length), under: `of ${matrix.of} rated` },
    { name: "In the equilibrium", value: String(matrix.nash_support.filter(({ mass }) => mass > 0).length), under: "models no other makes redundant" },
    { name: "Cycles", value: String(matrix.cycles.length), under: "each edge significant" },
    {
      name: "Not explained by ratings",
      value: percent(matrix.unexplained_share, 1),
      under:
        matrix.unexplained_by_chance === null
          ? "of the matrix's variance"
          : `of the matrix's variance; chance alone leaves ${percent(matrix.unexplained_by_chance, 1)}`,
    },
  ]);
}

function grid(matrix: Matrix): HTMLElement {
  const { players } = matrix;
  const heads = players.map((player) =>
    element("th", { scope: "col", title: player.repo }, element("a", { href: modelLink(player.repo) }, player.repo)),
  );
  const corner = element("td", {}, element("span", { class: "visually-hidden" }, "Points of row against column"));
  const rows = players.map((player, i) => {
    const name = element("a", { href: modelLink(player.repo) }, player.repo);
    const cells = players.map((other, j) => (i === j ? selfCell() : cell(matrix, player, other, i, j)));
    return element("tr", {}, element("th", { scope: "row", title: player.repo }, name), ...cells);
  });
  const table = element("table", { "aria-label": "Win matrix" });
  table.append(element("thead", {}, element("tr", {}, corner, ...heads)), element("tbody", {}, ...rows));
  const region = element(
    "div",
    { class: "scroll matrix", role: "region", "aria-label": "Win matrix", tabindex: "0" },
    table,
  );
  const legend = note(
    "Green: the row took more than half of the points. Red: less. Pale: few games. Small: games. A cell leads to the comparison.",
  );
  return box("Points of row against column", "", region, legend);
}

function selfCell(): HTMLElement {
  return element("td", {}, element("span", { class: "dim" }, "·"));
}

function cell(matrix: Matrix, player: Player, other: Player, i: number, j: number): HTMLElement {
  const share = matrix.share[i]?.[j] ?? null;
  const games = matrix.games[i]?.[j] ?? 0;
  const label = `${player.repo} against ${other.repo}: ${games ? `${percent(share)} of ${plural(games, "game")}` : "no games"}`;
  if (share === null || games === 0) return element("td", { title: label }, element("span", { class: "dim" }, "–"));
  const href = compareHref(other.repo, player.repo, matrix.env);
  const spoken = element("span", { class: "visually-hidden" }, ` games of ${player.name} against ${other.name}`);
  const content = [String(Math.round(100 * share)), element("small", {}, String(games), spoken)];
  const inside = href === null ? element("span", {}, ...content) : element("a", { href }, ...content);
  const made = element("td", { title: label }, inside);
  const strength = Math.round(Math.min(1, Math.abs(share - 0.5) * 2) * (games / (games + PALE_GAMES)) * 62);
  made.style.background = `color-mix(in srgb, var(--${share >= 0.5 ? "cell-win" : "cell-loss"}) ${strength}%, transparent)`;
  return made;
}

function support(matrix: Matrix): HTMLElement {
  const bySha = new Map(matrix.players.map((player, i) => [player.sha256, i]));
  const lines = new Map(matrix.nash_support.map((line) => [line.sha256, line]));
  const masses = new Map(matrix.nash_support.map(({ sha256, mass }) => [sha256, mass]));
  const table = new DataTable(
    {
      label: "Models by what they score against the equilibrium",
      limit: 15,
      columns: [
        { name: "Model", header: true, cell: (player: Player) => modelCell(player.repo) },
        {
          name: "Share",
          numeric: true,
          descending: true,
          explain: "Of the play of the equilibrium",
          by: (player) => masses.get(player.sha256) ?? null,
          cell: (player) => percent(masses.get(player.sha256) ?? null, 1),
        },
        {
          name: "Interval",
          numeric: true,
          optional: true,
          explain: "Of the share, at 95 %",
          cell: (player) => {
            const line = lines.get(player.sha256);
            return line ? `${percent(line.low)} to ${percent(line.high)}` : "–";
          },
        },
        {
          name: "Against it",
          numeric: true,
          descending: true,
          explain: "Points that it is ahead of the equilibrium",
          by: (player) => skillOf(player),
          cell: (player) => signed(skillOf(player)),
        },
        { name: "Rating", numeric: true, optional: true, cell: (player) => rated(player.rating, player.half_width) },
      ],
    },
    [...matrix.players].sort((a, b) => (masses.get(b.sha256) ?? -1) - (masses.get(a.sha256) ?? -1)),
  );
  function skillOf(player: Player): number | null {
    return matrix.nash_skill[bySha.get(player.sha256) ?? -1] ?? null;
  }
  const text = "The mixture of models that no single model beats. A pairing of few games counts as the ratings expect it. Copies of a model cannot raise its share.";
  return box("Equilibrium", text, table.root);
}

function cycles(matrix: Matrix): HTMLElement {
  const text =
    "Each beats the next and the last beats the first. Only cycles whose every edge is significant are listed.";
  if (!matrix.cycles.length) {
    return box(
      "Cycles",
      text,
      placeholder("No significant cycle", ["None stands out from chance in the games so far."]),
    );
  }
  const known = new Map(matrix.players.map((player) => [player.sha256, player]));
  return box(
    "Cycles",
    text,
    element("ol", { class: "plain-list" }, ...matrix.cycles.map((cycle) => cycleLine(cycle, known))),
  );
}

function cycleLine(cycle: Cycle, known: ReadonlyMap<string, Player>): HTMLElement {
  const parts = cycle.players.flatMap((sha256, i) => {
    const player = known.get(sha256);
    const name = player
      ? element("a", { href: modelLink(player.repo), title: player.repo }, player.name)
      : points(null);
    return [name, element("span", { class: "dim" }, `beats (${percent(cycle.shares[i] ?? null)})`)];
  });
  const first = known.get(cycle.players[0] ?? "");
  return element("li", { class: "cycle" }, ...parts, first?.name ?? points(null));
}
