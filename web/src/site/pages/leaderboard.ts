// The board: every ranked model with its interval, found by name, followed live.
import { element } from "../../page/dom";
import { intervalBar } from "../charts/marks";
import type { Range } from "../charts/plot";
import { isExport, load, LoadError, path } from "../data";
import { put } from "../focus";
import { count, percent, plural, rated } from "../format";
import { modelLink, pageLink, parameter, writeParameters } from "../links";
import { listen, paced } from "../live";
import { chooseEnvironment, environmentField, field, note, shareBar, switcher, tag, timeAgo } from "../parts";
import { RecentList } from "../recent";
import { buildShell, fill, heading, placeholder } from "../shell";
import type {
  Event,
  Leaderboard,
  LeaderboardRow,
  LooseGroup,
  Matrix,
  MeasureColumn,
  RecentMatches,
  UnrankedModels,
} from "../../api";
import { DataTable, Listed, type Column } from "../table";
import { unrankedTable } from "../unranked";

type View = "rating" | "other";

const shell = buildShell("index");
let page: LeaderboardPage | null = null;

const start = () =>
  fill(shell.content, async () => {
    const { all, env } = await chooseEnvironment();
    if (env === null) return emptyArena();
    const [models, recent] = await Promise.all([loadModels(env), load<RecentMatches>(path("recent", env))]);
    page = new LeaderboardPage(env, models, new RecentList(recent.matches));
    return page.build(environmentField(all, env));
  });

const refresh = paced(async () => {
  if (page) await page.refresh();
  else await start();
});

void start();
listen(
  (event) => {
    page?.follow(event);
    if (event.type !== "match") refresh();
  },
  (on) => shell.connected(on),
  refresh,
);

/** Who stands on the board, and who does not. */
interface Models {
  readonly board: Leaderboard;
  readonly unranked: UnrankedModels;
}

async function loadModels(env: string): Promise<Models> {
  const [board, unranked] = await Promise.all([
    load<Leaderboard>(path("leaderboard", env)),
    load<UnrankedModels>(path("unranked", env)),
  ]);
  return { board, unranked };
}

function emptyArena(): Node[] {
  return [heading("Leaderboard"), element("section", { class: "box" }, noModels())];
}

function noModels(): HTMLElement {
  if (isExport) return placeholder("No models yet", ["This copy was made before the first one was pushed."]);
  const box = placeholder("No models yet", ["Push one, and it is checked and playing within minutes:"]);
  box.append(element("pre", { tabindex: "0" }, `palus push results/my-run owner/name --hub ${location.origin}`));
  box.append(
    element("p", {}, "Something does not show up? ", element("a", { href: pageLink("status") }, "Status tells why.")),
  );
  return box;
}

class LeaderboardPage {
  private readonly main = element("div");
  private readonly others = new Listed(unrankedTable(false), element("div"));
  private readonly left = note();
  private readonly below = element("section", { class: "box", "aria-label": "Not on the board" });
  private readonly summary = element("p");
  private readonly found = element("p", { class: "visually-hidden", role: "status" });
  private readonly seen = new Map<string, number>();
  private table: DataTable<LeaderboardRow>;
  private view: View = parameter("columns") === "other" ? "other" : "rating";
  private masses: ReadonlyMap<string, number> | null = null;
  /** Why there is nothing in the Nash column. */
  private trouble = "";
  private query = parameter("q") ?? "";
  private range: Range;

  constructor(
    private readonly env: string,
    private models: Models,
    private readonly latest: RecentList,
  ) {
    this.remember();
    this.range = rangeOf(models.board.rows);
    this.table = this.newTable();
    this.below.append(element("header", {}, element("h2", {}, "Not on the board"), this.left), this.others.root);
  }

  build(environments: HTMLElement): Node[] {
    const search = element("input", {
      type: "search",
      value: this.query,
      placeholder: "Model or owner",
      spellcheck: "false",
    });
    search.addEventListener("input", () => {
      this.query = search.value;
      writeParameters({ q: this.query });
      this.show();
    });
    const views = [
      ["rating", "Rating"],
      ["other", [...this.models.board.measures.map(({ title }) => title), "Nash"].join(", ")],
    ] as const;
    const columns = switcher(
      "Columns",
      views,
      this.view,
      (view) => void this.switchTo(view === "other" ? "other" : "rating"),
    );
    const title = heading("Leaderboard");
    title.firstElementChild?.append(this.summary);
    void this.switchTo(this.view);
    const controls = element("div", { class: "bar" }, field("Search", search, true), environments, columns);
    return [
      title,
      controls,
      this.found,
      element("section", { class: "box flush", "aria-label": "Ranking" }, this.main),
      legend(),
      this.below,
      this.latest.root,
    ];
  }

  follow(event: Event): void {
    if (event.match && event.env === this.env) this.latest.add(event.match);
  }

  /** A board that cannot be loaded now is left as it is; the next event asks again. */
  async refresh(): Promise<void> {
    try {
      const recent = load<RecentMatches>(path("recent", this.env));
      const [models, { matches }] = await Promise.all([loadModels(this.env), recent, this.loadMasses()]);
      this.models = models;
      this.latest.add(...matches);
    } catch (error) {
      if (error instanceof LoadError) return;
      throw error;
    }
    this.show();
    this.remember();
  }

  private async switchTo(view: View): Promise<void> {
    this.view = view;
    writeParameters({ columns: view === "other" ? view : null });
    this.table = this.newTable();
    this.show();
    if (view === "rating") return;
    await this.loadMasses();
    this.show();
  }

  /** For the view that shows them. */
  private async loadMasses(): Promise<void> {
    if (this.view === "rating") return;
    try {
      const matrix = await load<Matrix>(path("matrix", this.env));
      this.masses = new Map(matrix.nash_support.map(({ sha256, mass }) => [sha256, mass]));
      this.trouble = "";
    } catch (error) {
      if (!(error instanceof LoadError)) throw error;
      this.trouble = `The column Nash could not be loaded. ${error.message}`;
    }
  }

  private show(): void {
    const { board, unranked } = this.models;
    const wanted = this.query.trim().toLowerCase();
    const rows = board.rows.filter((row) => row.repo.toLowerCase().includes(wanted));
    // Who looks for a name finds it even when its owner took it back.
    const others = unranked.models.filter((line) =>
      wanted ? line.repo.toLowerCase().includes(wanted) : line.state !== "withdrawn",
    );
    this.range = rangeOf(board.rows);
    this.summary.replaceChildren(...summaryOf(board));
    const trouble = this.view === "rating" ? "" : this.trouble;
    this.found.textContent = trouble || (wanted ? `${plural(rows.length + others.length, "model")} found` : "");
    this.found.className = trouble ? "note" : "visually-hidden";
    if (rows.length) {
      this.table.show(rows);
      put(this.main, this.table.root);
    } else {
      this.main.replaceChildren(this.nobody(others.length));
    }
    this.below.hidden = others.length === 0;
    this.left.textContent = whoIsLeft(unranked);
    this.others.show(others);
  }

  /** What stands in the place of the ranking. others: models that stand below it. */
  private nobody(others: number): HTMLElement {
    const below = others ? ["What was found stands below, with the reason."] : [];
    if (this.models.board.rows.length) return placeholder(`No ranked model matches “${this.query}”`, below);
    if (others) return placeholder("No model is ranked yet", ["Those that were pushed stand below, with the reason."]);
    return noModels();
  }

  private remember(): void {
    for (const row of this.models.board.rows) this.seen.set(row.sha256, row.games);
  }

  private newTable(): DataTable<LeaderboardRow> {
    const columns =
      this.view === "rating"
        ? [...nameColumns(), ...ratingColumns(() => this.range), ...gameColumns()]
        : [...nameColumns(), ...otherColumns(this.models.board.measures, (row) => this.masses?.get(row.sha256) ?? null), ...gameColumns()];
    return new DataTable({
      label: `Models of ${this.env} by rank`,
      columns,
      key: (row) => row.sha256,
      rowClass: (row) => (this.seen.get(row.sha256) === row.games ? "" : "arrived"),
    });
  }
}

function whoIsLeft({ models, of }: UnrankedModels): string {
  const text = "Models that wait, were refused, or are the same player as another.";
  return models.length === of ? text : `${text} The newest ${count(models.length)} of ${count(of)}.`;
}

function summaryOf(board: Leaderboard): (Node | string)[] {
  const { side, ratings_behind: due } = board;
  return [
    `${plural(board.rows.length, "ranked model")}, ${plural(board.matches, "match", "matches")} in the log, rated or not. `,
    ...(board.updated_ms === null ? ["No ratings yet"] : ["Ratings computed ", timeAgo(board.updated_ms)]),
    ...(board.intervals_ms === null ? [] : [", intervals ", timeAgo(board.intervals_ms)]),
    due > 0 ? `, ${plural(due, "match", "matches")} not in yet.` : ".",
    side ? ` Playing blue is worth ${rated(side.points, side.half_width)} points.` : "",
    ...board.loose.map(looseText),
  ];
}

function looseText({ repos, pairs }: LooseGroup): string {
  const names = repos.length > 4 ? `${repos.slice(0, 3).join(", ")} and ${repos.length - 3} more` : repos.join(", ");
  return ` Only ${plural(pairs, "mirrored pair ties", "mirrored pairs tie")} ${names} to the other models: ratings cannot be compared across that gap.`;
}

/** All ratings with most of their intervals, so that bars can be compared down the column. */
function rangeOf(rows: readonly LeaderboardRow[]): Range {
  const settled = rows.filter((row) => !row.provisional);
  const shown = settled.length ? settled : rows;
  if (!shown.length) return [1000, 1400];
  const low = Math.min(...shown.map((row) => row.rating - row.half_width), ...rows.map((row) => row.rating));
  const high = Math.max(...shown.map((row) => row.rating + row.half_width), ...rows.map((row) => row.rating));
  return [low, high];
}

function rankText(row: LeaderboardRow): string {
  return row.rank_best === row.rank_worst ? String(row.rank_best) : `${row.rank_best}–${row.rank_worst}`;
}

function nameColumns(): Column<LeaderboardRow>[] {
  return [
    {
      name: "Rank",
      numeric: true,
      by: (row) => row.rank,
      cell: rankText,
      explain: "Ranks that the results so far leave open, at 95 %",
    },
    { name: "Model", header: true, by: (row) => row.name.toLowerCase(), cell: nameCell },
    {
      name: "Owner",
      optional: true,
      by: (row) => row.owner.toLowerCase(),
      cell: (row) => row.owner,
    },
  ];
}

function nameCell(row: LeaderboardRow): HTMLElement {
  const owner = element("span", { class: "only-narrow" }, row.owner);
  const marks: (Node | string)[] = [];
  if (row.provisional)
    marks.push(" ", tag("provisional", "wait"));
  if (row.kind !== "model") marks.push(" ", tag(row.kind));
  const link = element("a", { href: modelLink(row.repo) }, row.name);
  return element("span", { class: "model" }, element("span", {}, link, ...marks), element("small", {}, owner));
}

function ratingColumns(range: () => Range): Column<LeaderboardRow>[] {
  return [
    {
      name: "Rating",
      numeric: true,
      descending: true,
      by: (row) => row.rating,
      cell: (row) => rated(row.rating, row.half_width),
      explain: "Joint Bradley-Terry rating with its 95 % interval",
    },
    {
      name: "Interval",
      optional: true,
      cell: (row) => intervalBar(row.rating, row.half_width, range(), row.provisional),
    },
    {
      name: "Results",
      optional: true,
      descending: true,
      by: (row) => (row.games ? (row.wins + row.draws / 2) / row.games : null),
      cell: (row) => shareBar(row.wins, row.draws, row.losses),
      explain: "Wins, draws and losses; sorted by points taken",
    },
  ];
}

/** A number that the server declares as a column of its own. */
function measureColumn({ field, title, explain, decimals }: MeasureColumn): Column<LeaderboardRow> {
  const value = (row: LeaderboardRow) => Number(row[field as keyof LeaderboardRow]);
  return { name: title, numeric: true, descending: true, by: value, cell: (row) => value(row).toFixed(decimals), explain };
}

function otherColumns(
  measures: readonly MeasureColumn[],
  mass: (row: LeaderboardRow) => number | null,
): Column<LeaderboardRow>[] {
  return [
    ...measures.map(measureColumn),
    {
      name: "Nash",
      numeric: true,
      descending: true,
      by: mass,
      cell: (row) => percent(mass(row), 1),
      explain: "How often the maximum-entropy equilibrium of the win matrix plays this model",
    },
  ];
}

function gameColumns(): Column<LeaderboardRow>[] {
  return [
    { name: "Games", numeric: true, descending: true, by: (row) => row.games, cell: (row) => count(row.games) },
    {
      name: "Last match",
      optional: true,
      descending: true,
      by: (row) => row.last_match_ms,
      cell: (row) => timeAgo(row.last_match_ms),
    },
  ];
}

function legend(): HTMLElement {
  return note(
    "A rank range such as 3–7 means that the results do not separate these places yet. Provisional: below 20 games, or the interval is wider than ± 100. 400 points are odds of 10 to 1. ",
    element("a", { href: pageLink("status") }, "Why is my model not ranked?"),
  );
}
