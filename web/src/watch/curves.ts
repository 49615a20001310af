// The curves of all runs: a chart for every figure, a line in it for every learner of every run.
import { element } from "../page/dom";
import { linesChart, type Line, type Point } from "../site/charts/lines";
import { brief, duration } from "../site/format";
import { box, note } from "../site/parts";
import type { Curves, LeaguePolicy, WatchedRun } from "../api";

export type Axis = "steps" | "time";

const PALETTE = 8;
/** Tags with these endings are the interval of the tag without. */
const END = / (Low|High)$/;

interface Section {
  readonly title: string;
  readonly text: string;
  readonly holds: (tag: string) => boolean;
}

const REWARDS = ["Environment/Cumulative Reward", "Environment/Group Cumulative Reward", "Policy/Extrinsic Reward"];

const SECTIONS: readonly Section[] = [
  {
    title: "Rating",
    text: "From matches against past selves, so it compares a run with itself. Bands are 95 % intervals.",
    holds: (tag) => tag.startsWith("Self-play/"),
  },
  {
    title: "Points against fixed opponents",
    text: "Share of points in mirrored pairs; the same opponents for every run.",
    holds: (tag) => tag.startsWith("Baselines/"),
  },
  {
    title: "Rewards",
    text: "What agents were paid per episode, and the terms of it that the game reports.",
    holds: (tag) => REWARDS.includes(tag) || tag.startsWith("Environment/"),
  },
  {
    title: "Losses and entropy",
    text: "Entropy falls as a policy makes up its mind.",
    holds: (tag) => tag.startsWith("Losses/") || tag === "Policy/Entropy" || tag === "Policy/KL",
  },
  { title: "Speed", text: "", holds: (tag) => tag.startsWith("Performance/") },
  { title: "Everything else", text: "", holds: () => true },
];

const SKILL = new Set(["Rating", "Points against fixed opponents"]);

interface Owner {
  readonly run: WatchedRun;
  readonly curves: Curves;
  readonly name: string;
  readonly colour: string;
}

/** Every learner of every run with its name and colour. */
function owners(runs: readonly WatchedRun[]): Owner[] {
  const all = runs.flatMap((run) => run.learners.map((curves) => ({ run, curves })));
  return all.map(({ run, curves }, i) => {
    const parts = [...(runs.length > 1 ? [run.name] : []), ...(run.learners.length > 1 ? [curves.learner] : [])];
    return { run, curves, name: parts.join(" ") || run.name, colour: `series-${i % PALETTE}` };
  });
}

/** The sections of charts of all that the runs report. skill: how good they are; without: how they get there. */
export function curveSections(runs: readonly WatchedRun[], axis: Axis, skill: boolean): HTMLElement[] {
  const all = owners(runs);
  const told = new Set(all.flatMap(({ curves }) => Object.keys(curves.values)));
  const tags = [...told].filter((tag) => !told.has(tag.replace(END, "")) || !END.test(tag));
  const free = new Set(tags);
  return SECTIONS.flatMap(({ title, text, holds }) => {
    const own = tags.filter((tag) => free.has(tag) && holds(tag));
    for (const tag of own) free.delete(tag);
    const charts = own.flatMap((tag) => chartOf(tag, all, axis));
    if (title === "Rating") charts.push(...spans(all, axis));
    if (!charts.length) return [];
    const content = element("div", { class: "charts" }, ...charts);
    if (skill !== SKILL.has(title)) return [];
    const parts = all.length > 1 ? [key(all), content] : [content];
    if (title !== "Everything else") return [box(title, text, ...parts)];
    return [element("details", { class: "box" }, element("summary", {}, title), ...parts)];
  });
}

function key(all: readonly Owner[]): HTMLElement {
  const entries = all.map(({ name, colour }) => element("li", {}, element("i", { class: colour }), name));
  return element("ul", { class: "key" }, ...entries);
}

function titled(title: string, chart: HTMLElement): HTMLElement {
  return element("div", {}, element("h3", {}, title), chart);
}

function chartOf(tag: string, all: readonly Owner[], axis: Axis): HTMLElement[] {
  const lines: Line[] = all.flatMap(({ curves, name, colour }) => {
    const [lows, highs] = [curves.values[`${tag} Low`], curves.values[`${tag} High`]];
    const points = (curves.values[tag] ?? []).flatMap((y, i): Point[] => {
      const x = axis === "steps" ? curves.steps[i] : curves.seconds[i];
      const [low, high] = [lows?.[i], highs?.[i]];
      if (y === null || x === null || x === undefined) return [];
      return [typeof low === "number" && typeof high === "number" ? { x, y, low, high } : { x, y }];
    });
    return points.length ? [{ name, colour, points }] : [];
  });
  if (!lines.length) return [];
  const name = tag.replace(/^[^/]+\//, "");
  return [titled(name, linesChart({ name, lines, x: axisLabel(axis) }))];
}

function axisLabel(axis: Axis): (value: number) => string {
  return axis === "steps" ? brief : duration;
}

/** Ratings of the snapshots with their intervals, where the league keeps them. */
function spans(all: readonly Owner[], axis: Axis): HTMLElement[] {
  const lines = all.flatMap(({ run, curves, name, colour }): Line[] => {
    const own = (run.league?.policies ?? []).filter(({ id, parent }) => parent === curves.policy || id === curves.policy);
    const points = own.flatMap((policy) => spanPoint(policy, curves, axis)).sort((a, b) => a.x - b.x);
    return points.length ? [{ name, colour, points }] : [];
  });
  const title = "Past selves as rated now";
  if (lines.length) return [titled(title, linesChart({ name: title, lines, x: axisLabel(axis) }))];
  const words = "Nothing yet: the leagues of these runs keep no ratings with intervals, or have rated nobody so far.";
  return all.some(({ run }) => run.league) ? [titled(title, note(words))] : [];
}

function spanPoint({ rating, step }: LeaguePolicy, curves: Curves, axis: Axis): Point[] {
  const x = step === null ? null : axis === "steps" ? step : secondsAt(curves, step);
  return rating === null || x === null ? [] : [{ x, y: rating.mean, low: rating.low, high: rating.high }];
}

/** When a learner was at that step: between its summaries as if its speed were even. */
function secondsAt({ steps, seconds }: Curves, step: number): number | null {
  const after = steps.findIndex((one) => one >= step);
  if (after < 0) return seconds.at(-1) ?? null;
  const [s1, t1] = [steps[after] ?? 0, seconds[after] ?? null];
  const [s0, t0] = after ? [steps[after - 1] ?? 0, seconds[after - 1] ?? null] : [0, 0];
  return t0 === null || t1 === null ? null : t0 + ((t1 - t0) * (step - s0)) / Math.max(1, s1 - s0);
}
