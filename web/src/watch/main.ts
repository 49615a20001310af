// The live page of runs: asks again while it is in front, and draws anew only what has changed.
import { element } from "../page/dom";
import { load, LoadError } from "../site/data";
import { ago, brief, count, duration, percent } from "../site/format";
import { parameter, writeParameters } from "../site/links";
import { facts, field, select, switcher, type Fact } from "../site/parts";
import { buildFrame, heading } from "../site/shell";
import type { WatchedRun, WatchedRuns } from "../api";
import { curveSections, type Axis } from "./curves";
import { leagueSections, type Payoffs } from "./league";
import { MatchBox } from "./match";
import "./watch.css";

const LOOK_MS = 2000;

const shell = buildFrame(
  "palus watch",
  element("nav"),
  "Every number comes from the run's folder. TensorBoard shows the same curves: tensorboard --logdir results",
);
const head = element("div", { class: "content-part" });
const bar = element("div", { class: "bar" });
const skill = element("div", { class: "content-part", id: "skill" });
const curves = element("div", { class: "content-part", id: "curves" });
const league = element("div", { class: "content-part", id: "league" });
const match = new MatchBox();
shell.content.setAttribute("aria-busy", "true");
shell.content.append(head, bar, skill, match.root, league, curves);

let runs: readonly WatchedRun[] = [];
let axis: Axis = parameter("axis") === "time" ? "time" : "steps";
let payoffs: Payoffs = "training";
let chosen = 0;
const drawn = new Map<HTMLElement, string>();

/** Fills a part of the page when what it shows is not what it showed. */
function draw(part: HTMLElement, shown: unknown, make: () => readonly Node[]): void {
  const key = JSON.stringify(shown);
  if (drawn.get(part) === key) return;
  drawn.set(part, key);
  const open = [...part.querySelectorAll("details")].map((one) => one.open);
  const focused = [...part.querySelectorAll("summary")].findIndex((one) => one === document.activeElement);
  part.replaceChildren(...make());
  part.querySelectorAll("details").forEach((one, i) => (one.open = open[i] ?? false));
  part.querySelectorAll("summary")[focused]?.focus({ preventScroll: true });
}

function show(): void {
  const run = runs[chosen] ?? runs[0];
  if (!run) return;
  draw(head, runs.map((one) => [one.name, factsOf(one)]), () => heads());
  draw(bar, [runs.map(({ name }) => name), !!run.league?.evaluation.length], () => controls(run));
  const figures = [axis, runs.map(({ name, learners, league }) => [name, learners, league?.policies])];
  draw(skill, figures, () => curveSections(runs, axis, true));
  draw(curves, figures, () => curveSections(runs, axis, false));
  draw(league, [run.number, run.state, run.league, payoffs], () => leagueSections(run, payoffs));
  match.update(run);
}

function heads(): Node[] {
  const title = heading(runs.map(({ name }) => name).join(" and "), [...new Set(runs.map(({ game }) => game ?? ""))].join(", "));
  document.title = `${runs.map(({ name }) => name).join(", ")} · palus watch`;
  if (runs.length === 1) return [title, ...runs.map((run) => facts(factsOf(run)))];
  return [title, ...runs.map((run) => element("section", {}, element("h2", {}, run.name), facts(factsOf(run))))];
}

const STATES: Record<WatchedRun["state"], string> = {
  waiting: "Not begun",
  running: "Training",
  finished: "Finished",
  stopped: "Stopped",
};

function factsOf(run: WatchedRun): Fact[] {
  const slowest = run.learners.reduce<WatchedRun["learners"][number] | null>(
    (least, one) => (least === null || one.step < least.step ? one : least),
    null,
  );
  const training = run.learners.flatMap(({ seconds }) => seconds.at(-1) ?? []);
  const step = slowest?.step ?? 0;
  const most = slowest?.max_steps ?? null;
  const elos = run.learners.flatMap(({ values }) => (values["Self-play/ELO"] ?? []).filter((elo) => elo !== null).at(-1) ?? []);
  return [
    { name: "State", value: STATES[run.state], under: run.heard_ms === null ? "" : `last word ${ago(run.heard_ms)}` },
    {
      name: "Steps",
      value: brief(step),
      under: most === null ? count(step) : `${percent(Math.min(1, step / most))} of ${brief(most)}`,
    },
    { name: "Speed", value: slowest?.speed ? `${brief(slowest.speed)}/s` : "–", under: "of late" },
    { name: "Time left", value: run.state === "running" ? duration(run.left_s) : "–", under: "at this speed" },
    { name: "Trained for", value: duration(training.length ? Math.max(...training) : null) },
    ...(elos.length ? [{ name: "Elo", value: elos.map((elo) => count(elo)).join(" / ") }] : []),
  ];
}

function controls(run: WatchedRun): Node[] {
  const axes = switcher("Along the bottom of the charts", [["steps", "Steps"], ["time", "Time"]], axis, (value) => {
    axis = value as Axis;
    writeParameters({ axis: axis === "time" ? axis : null });
    show();
  });
  const tables = switcher("Matches of the matrix", [["training", "Training"], ["evaluation", "Evaluation"]], payoffs, (value) => {
    payoffs = value as Payoffs;
    show();
  });
  const options = runs.map(({ number, name }) => [String(number), name] as const);
  const choice = select(options, String(run.number), (value) => {
    chosen = Number(value);
    show();
  });
  return [
    axes,
    ...(run.league?.evaluation.length ? [tables] : []),
    ...(runs.length > 1 ? [field("League and match of", choice)] : []),
  ];
}

let looking = false;

async function look(): Promise<void> {
  if (looking || document.hidden) return;
  looking = true;
  try {
    runs = (await load<WatchedRuns>("runs")).runs;
    shell.connected(true);
    show();
  } catch (error) {
    if (!(error instanceof LoadError)) throw error;
    shell.connected(false);
    if (!runs.length) head.replaceChildren(heading("No answer", error.message));
  } finally {
    looking = false;
    shell.content.removeAttribute("aria-busy");
  }
}

document.addEventListener("visibilitychange", () => void look());
window.setInterval(() => void look(), LOOK_MS);
void look();
