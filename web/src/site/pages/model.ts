// One repository: whether it was accepted, how it does, against whom, and how it plays.
import { element } from "../../page/dom";
import { linesChart } from "../charts/lines";
import { ratingChart } from "../charts/series";
import { cardFrame } from "../card";
import { comparable, isExport, load, LoadError, path } from "../data";
import { brief, count, moment, plural, points, rated, short } from "../format";
import { modelLink, pageLink, parameter, repoOfPage, writeParameters } from "../links";
import { listen, paced } from "../live";
import { againstBox, matchesBox, nextBox, opponentsBox } from "../model/opponents";
import { playBox, scoresBox, sidesBox } from "../model/play";
import { box, definitions, facts, note, stateTag, switcher, tag, timeAgo, type Content } from "../parts";
import { buildShell, fill, heading, placeholder } from "../shell";
import type { ClaimedProbe, LeaderboardRow, ModelPage, Performance, Revision } from "../../api";
import { DataTable } from "../table";

const shell = buildShell(null);
const repo = repoOfPage();
const REFRESH_MS = 10_000;
/** Revisions whose ratings can be chosen. */
const OFFERED = 6;
let current: ModelPage | null = null;
let arriving = false;

const get = () => load<ModelPage>(path("models", ...repo.split("/")));
const show = (model: ModelPage) => {
  current = model;
  return build(model);
};

void fill(shell.content, async () => show(await get())).then((found) => {
  if (!found) return;
  listen(
    (event) => {
      const ours = event.type === "entry" && event.repo === repo;
      if (ours || (event.type === "rating" && awaits(current, event.env))) refresh();
    },
    (on) => {
      arriving = on;
      sign();
    },
    refresh,
  );
  window.setInterval(() => !document.hidden && isPending(current) && refresh(), REFRESH_MS);
});

/** The outcome of validation and the first rating are what its author waits for: the page follows these, and stands still otherwise. */
const refresh = paced(async () => {
  const newer = await get().catch((error: unknown) => {
    if (error instanceof LoadError) return current;
    throw error;
  });
  if (newer && states(newer) !== states(current)) await fill(shell.content, async () => show(newer));
  sign();
});

/** A page whose numbers stand still does not call itself live. */
function sign(): void {
  const shown = current && chosenOf(current);
  const waits = !current?.revisions.length || isPending(current) || shown?.standing === null;
  shell.connected(waits ? arriving : null);
}

function states(model: ModelPage | null): string {
  const revisions = (model?.revisions ?? []).map((line) => `${line.env} ${line.revision} ${line.state}`);
  const ranked = (model?.performance ?? []).map((each) => `${each.env} ${each.standing !== null}`);
  return [...revisions, ...ranked].join();
}

/** Whether the next ratings of this environment may be its first. */
function awaits(model: ModelPage | null, env: string | null): boolean {
  return (model?.performance ?? []).some((each) => each.env === env && each.standing === null);
}

function isPending(model: ModelPage | null): boolean {
  return (model?.revisions ?? []).some((revision) => revision.state === "pending");
}

/** In the environment that is shown. */
function chosenOf(model: ModelPage): Performance | undefined {
  const asked = parameter("env");
  return model.performance.find((each) => each.env === asked) ?? model.performance[0];
}

function build(model: ModelPage): Node[] {
  const chosen = chosenOf(model);
  const body = element("div", { class: "content-part" });
  if (chosen) body.append(...performance(model, chosen));
  return [title(model, chosen, body), ...validation(model), body, ...about(model)];
}

function title(model: ModelPage, chosen: Performance | undefined, body: HTMLElement): HTMLElement {
  const marks: Content[] = [];
  if (model.kind !== "model") marks.push(tag(model.kind), " ");
  if (chosen?.standing?.provisional)
    marks.push(tag("provisional", "wait"), " Below 20 games, or the interval is wider than ± 100.");
  const environments = model.performance.map((each) => [each.env, each.env] as const);
  const links = element("span", { class: "bar" }, ...actions(model, chosen));
  const change = (env: string) => {
    writeParameters({ env });
    const found = model.performance.find((each) => each.env === env);
    links.replaceChildren(...actions(model, found));
    if (found) body.replaceChildren(...performance(model, found));
    sign();
  };
  const choice = environments.length > 1 ? [switcher("Environment", environments, chosen?.env ?? "", change)] : [];
  const head = heading(model.repo, "", element("div", { class: "bar" }, ...choice, links));
  if (marks.length) head.firstElementChild?.append(element("p", {}, ...marks));
  return head;
}

/** What can be done with the model in the shown environment. */
function actions(model: ModelPage, shown: Performance | undefined): HTMLElement[] {
  if (!shown?.revisions_accepted) return [];
  const compare = element("a", { class: "button", href: pageLink("compare", { b: model.repo, env: shown.env }) }, "Compare");
  if (isExport) return comparable(shown.env, model.repo).length ? [compare] : [];
  if (!shown.drawn) return [compare];
  const seat = { purple: model.repo, play: "1", env: shown.env };
  return [compare, element("a", { class: "button primary", href: pageLink("room", seat) }, "Play against it")];
}

/** The outcome for the newest revision of each environment; nothing where it is accepted. */
function validation(model: ModelPage): HTMLElement[] {
  if (!model.revisions.length) return [noRevision()];
  const newest = model.performance.flatMap(({ env }) => newestIn(model, env) ?? []);
  return newest.flatMap((line) => outcomeOf(line, newest.length > 1 ? ` in ${line.env}` : ""));
}

function newestIn(model: ModelPage, env: string): Revision | undefined {
  return model.revisions.find((line) => line.env === env);
}

/** where: words for the environment, where there are several. */
function outcomeOf(newest: Revision, where: string): HTMLElement[] {
  if (newest.state === "accepted") return [];
  const name = `Revision ${short(newest.revision)}`;
  const verdict = (kind: string, ...lines: HTMLElement[]) => [
    element("section", { class: `verdict ${kind}`, "aria-label": `Validation${where}` }, ...lines),
  ];
  if (newest.refusal) {
    const { code, sentence, remedy } = newest.refusal;
    const waits = newest.state === "waiting";
    return verdict(
      waits ? "wait" : "bad",
      element("strong", {}, `${name} ${waits ? "waits" : "was refused"}${where}`),
      element("p", {}, sentence),
      element("p", {}, "What to do: ", remedy),
      element("p", { class: "dim" }, "Code ", element("code", {}, code)),
    );
  }
  const words = newest.state === "pending" ? "waits to be checked" : "was withdrawn";
  const text = newest.state === "pending" ? "It is checked as soon as a worker is free; this page follows." : "";
  return verdict("wait", element("strong", {}, `${name} ${words}${where}`), element("p", {}, text));
}

/** Of a repository that the arena does not take for a player. */
function noRevision(): HTMLElement {
  const lines = [
    element("strong", {}, "No model of this repository plays here"),
    element("p", {}, "A repository takes part when it holds a model for every behavior of a game, named after it."),
    element("p", {}, "What to do: push the folder of a run with palus push, which names and tags what it pushes."),
    element("p", {}, "If that was done just now: the arena looks for new models every few seconds, and this page follows."),
  ];
  return element("section", { class: "verdict wait", "aria-label": "Validation" }, ...lines);
}

function performance(model: ModelPage, shown: Performance): HTMLElement[] {
  const standing = [...samePlayer(shown), shown.standing ? standingFacts(shown.standing) : unranked(shown.why_unranked)];
  const explained = Boolean(newestIn(model, shown.env)?.refusal);
  if (!shown.recent.length && !shown.history.length) return explained ? [] : standing;
  const wide = element("div", { class: "columns" }, ratingBox(shown), againstBox(shown.by_strength));
  const sides = sidesBox(shown);
  const own = shown.measured ? element("div", { class: "content-part" }, playBox(shown.play), sides) : sides;
  const play = element("div", { class: "columns" }, own, scoresBox(shown.scores));
  const matches = element(
    "div",
    { class: "columns" },
    matchesBox("Best wins", "The strongest opponents beaten.", shown.best_wins),
    matchesBox("Worst losses", "The weakest opponents lost to.", shown.worst_losses),
  );
  const last = [nextBox(model.repo, shown), matchesBox("Newest matches", "", shown.recent)];
  return [...standing, wide, opponentsBox(model.repo, shown), matches, play, ...last];
}

/** Who is rated under another name is told so before the numbers. */
function samePlayer({ same_as }: Performance): HTMLElement[] {
  if (same_as === null) return [];
  const lines = [
    element("strong", {}, "The same player as ", element("a", { href: modelLink(same_as) }, same_as)),
    element("p", {}, `Equal models are one rated player. It stands on the board as ${same_as}; these are its results.`),
  ];
  return [element("section", { class: "verdict wait", "aria-label": "Same player" }, ...lines)];
}

function standingFacts(row: LeaderboardRow): HTMLElement {
  const rank = row.rank_best === row.rank_worst ? `${row.rank_best}` : `${row.rank_best}–${row.rank_worst}`;
  const share = row.games ? (row.wins + row.draws / 2) / row.games : 0;
  return facts([
    { name: "Rank", value: rank, under: "left open by the results" },
    { name: "Rating", value: rated(row.rating, row.half_width), under: "with its 95 % interval" },
    { name: "Games", value: count(row.games), under: `${row.wins} won, ${row.draws} drawn, ${row.losses} lost` },
    { name: "Points taken", value: `${(100 * share).toFixed(1)} %`, under: "win 1, draw ½" },
    { name: "Elo", value: row.elo.toFixed(0), under: "online formula, K 20" },
    { name: "Last match", value: timeAgo(row.last_match_ms) },
  ]);
}

function unranked(why: string | null): HTMLElement {
  const link = element("a", { href: pageLink("status") }, "Status of the queue");
  return element(
    "section",
    { class: "box" },
    placeholder("Not ranked", [why ?? "It has no rated games yet. ", " ", link]),
  );
}

function ratingBox(shown: Performance): HTMLElement {
  const withPoints = shown.history.filter((series) => series.points.length > 0);
  if (withPoints.length === 0) {
    return box("Rating over time", "", placeholder("No rating yet", ["The line starts with the first rated match."]));
  }
  const current = withPoints.find((series) => series.sha256 === shown.standing?.sha256) ?? withPoints[0];
  const place = element("div", {}, ...(current ? [ratingChart(current.points)] : []));
  if (withPoints.length < 2) return box("Rating over time", "", place);
  const options = withPoints.map((series) => [series.sha256, short(series.revision)] as const);
  const choice = switcher("Revision", options.slice(0, OFFERED), current?.sha256 ?? "", (sha256) => {
    const series = withPoints.find((each) => each.sha256 === sha256);
    if (series) place.replaceChildren(ratingChart(series.points));
  });
  const all = shown.revisions_accepted;
  const which = all > OFFERED ? `one of the newest of ${count(all)} revisions` : "one revision";
  return box("Rating over time", `Of ${which}; another one is another policy.`, choice, place);
}

function about(model: ModelPage): HTMLElement[] {
  const card = model.card_html
    ? cardFrame(model.card_html, `Model card of ${model.repo}`)
    : placeholder("No model card", [
        model.kind === "house"
          ? "A player of the house, written by hand."
          : model.on_hub
            ? "Add a README.md to the repository."
            : "The model came as a file, without a repository.",
      ]);
  return [
    ...(model.probe ? [probeBox(model.probe)] : []),
    element("div", { class: "columns" }, box("Model card", "", card), repository(model)),
    ...(model.revisions.length ? [revisions(model)] : []),
  ];
}

/** What the publisher says, in our words and drawn by us: of the file only numbers reach the page. */
function probeBox(probe: ClaimedProbe): HTMLElement {
  const { env_id, behavior, symmetric, trainer_type, steps, wall_seconds, best, curve, bound } = probe;
  const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
  const minutes = (wall_seconds / 60).toFixed(1);
  const shown = facts([
    {
      name: symmetric ? "Exploitability" : "Can be won from it",
      value: `≥ ${bound.toFixed(2).replace("-", "−")}`,
      under: "points per match, win 1, loss −1",
    },
    { name: "Points taken", value: percent(best.share), under: `${percent(best.low)} to ${percent(best.high)}, 95 %` },
    { name: symmetric ? "Mirrored pairs" : "Matches", value: count(best.pairs), under: "apart from those of the curve" },
    { name: "Budget", value: `${brief(steps)} steps`, under: `${trainer_type}, ${minutes} minutes` },
  ]);
  const points = curve.map(({ steps: x, share, low, high }) => ({ x, y: share, low, high }));
  const chart = linesChart({
    name: "Share of points of the best response",
    lines: [{ name: behavior, colour: "series-0", points }],
    x: brief,
    caption: "Share of points by trainer steps of the response, with 95 % intervals.",
  });
  const text =
    `What a best response, trained by the publisher against this model alone, took from it in ${env_id}, a lower ` +
    "bound of what can be taken. " +
    "These are the publisher's own numbers, from probe.json; the arena has not played these matches.";
  return box("Exploitability, as its publisher says", text, shown, chart);
}

function repository(model: ModelPage): HTMLElement {
  if (!model.on_hub) {
    const why = "This player is not a repository of this hub: there is nothing to download.";
    return box("Repository", "", definitions([["Name", element("code", {}, model.repo)]]), note(why));
  }
  const tags = model.tags.flatMap((name) => [tag(name), " "]);
  const rows: (readonly [string, Content])[] = [
    ["Repository", element("code", {}, model.repo)],
    ["Library", model.library_name ?? "–"],
    ["Tags", tags.length ? element("span", {}, ...tags) : "–"],
    ["Downloads", count(model.downloads)],
    ["Created", moment(model.created_ms)],
    ["Changed", moment(model.modified_ms)],
  ];
  if (isExport) return box("Repository", "", definitions(rows), note("Its files are on the arena of which this is a copy."));
  const pull = `palus pull ${model.repo} --hub ${location.origin}`;
  const get = [note("Get the files:"), element("pre", { class: "command", tabindex: "0" }, pull)];
  return box("Repository", "", definitions(rows), ...get);
}

function revisions({ revisions: lines, revisions_pushed: pushed, performance }: ModelPage): HTMLElement {
  const names = new Map(performance.map(({ env, same_as }) => [env, same_as]));
  const table = new DataTable(
    {
      label: "Revisions",
      limit: 20,
      columns: [
        { name: "Revision", header: true, cell: (line) => revisionCell(line, names.get(line.env) ?? null) },
        { name: "State", cell: (line: Revision) => stateTag(line.state) },
        {
          name: "Rating",
          numeric: true,
          cell: (line) => (line.rating === null ? points(null) : rated(line.rating, line.half_width)),
        },
        { name: "Games", numeric: true, optional: true, cell: (line) => count(line.games) },
        { name: "What validation found", optional: true, cell: findings },
        { name: "Pushed", optional: true, cell: (line) => timeAgo(line.pushed_ms) },
      ],
    },
    lines,
  );
  const listed = pushed > lines.length ? ` The newest ${count(lines.length)} are listed.` : "";
  const text = `Each revision is rated on its own; equal files are one rated player, whoever pushed them.${listed}`;
  return box(plural(pushed, "revision"), text, table.root);
}

/** sameAs: whose name it plays under, if another one. */
function revisionCell(line: Revision, sameAs: string | null): HTMLElement {
  const shown = sameAs === null ? " shown on the board" : ` shown on the board as ${sameAs}`;
  const name = element("code", { title: line.revision }, short(line.revision));
  return element(
    "span",
    { class: "model" },
    element("span", { class: "wraps" }, name, line.current ? shown : ""),
    element("small", {}, line.file),
  );
}

function findings(line: Revision): HTMLElement {
  if (line.refusal) {
    const { code, sentence, remedy } = line.refusal;
    return element(
      "span",
      { class: "model" },
      sentence,
      element("small", {}, remedy),
      element("small", {}, element("code", {}, code)),
    );
  }
  const measured = Object.entries(line.details)
    .filter(([, value]) => typeof value !== "object")
    .map(([key, value]) => `${key.replaceAll("_", " ")} ${String(value)}`);
  return element("span", { class: "dim wraps" }, measured.join(", ") || "–");
}
