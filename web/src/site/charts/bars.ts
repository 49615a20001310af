// Charts of bars: results per day, counts per bin.
import { element } from "../../page/dom";
import { count, plural } from "../format";
import type { TeamDay } from "../../api";
import { figure, rect, scale, text, ticks, valueAxis, type Area } from "./plot";

const GAP = 0.22;
const WIDEST_PX = 34;

function slots(area: Area, number: number): { x: (i: number) => number; width: number; step: number } {
  const step = (area.right - area.left) / Math.max(1, number);
  const width = Math.min(WIDEST_PX, step * (1 - GAP));
  return { x: (i) => area.left + i * step + (step - width) / 2, width, step };
}

/** The slot under x, or null beside the bars. */
function slotAt(x: number, area: Area, number: number): number | null {
  const found = Math.floor(((x - area.left) / (area.right - area.left)) * number);
  return found >= 0 && found < number ? found : null;
}

/** Labels under as many slots as have room for one. */
function slotLabels(area: Area, labels: readonly string[], roomPx: number): SVGElement[] {
  const { step } = slots(area, labels.length);
  const every = Math.max(1, Math.ceil(roomPx / step));
  return labels.flatMap((label, i) =>
    i % every === 0 ? [text(area.left + (i + 0.5) * step, area.bottom + 20, label, "middle")] : [],
  );
}

/** Every day from the first to the last: days without games have an empty place. */
function everyDay(days: readonly TeamDay[]): TeamDay[] {
  const known = new Map(days.map((day) => [day.day, day]));
  const sorted = [...known.keys()].sort();
  const [first, last] = [sorted[0], sorted.at(-1)];
  if (!first || !last) return [];
  const all: TeamDay[] = [];
  for (let at = Date.parse(first); at <= Date.parse(last); at += 86_400_000) {
    const day = new Date(at).toISOString().slice(0, 10);
    all.push(known.get(day) ?? { day, losses: 0, draws: 0, wins: 0 });
  }
  return all;
}

/** Stacked bars per day: losses at the bottom, then draws, then wins. */
export function resultsPerDay(some: readonly TeamDay[]): HTMLElement {
  const days = everyDay(some);
  const most = Math.max(1, ...days.map((day) => day.losses + day.draws + day.wins));
  const games = days.reduce((sum, day) => sum + day.losses + day.draws + day.wins, 0);
  const chart = figure({
    label: `Results per day: ${plural(games, "game")} on ${plural(days.length, "day")}, at most ${most} in one day`,
    height: 250,
    draw: (area) => {
      const { x, width } = slots(area, days.length);
      const y = scale([0, most], [area.bottom, area.top]);
      const bars = days.flatMap((day, i) => {
        const parts = [
          ["bar-loss", day.losses],
          ["bar-draw", day.draws],
          ["bar-win", day.wins],
        ] as const;
        let below = 0;
        return parts.map(([name, value]) => {
          below += value;
          return rect(x(i), y(below), width, y(0) - y(value), name);
        });
      });
      const grid = valueAxis(area, y, ticks([0, most], 4).filter(Number.isInteger), count);
      return [
        ...grid,
        ...bars,
        ...slotLabels(
          area,
          days.map((day) => day.day.slice(5)),
          52,
        ),
      ];
    },
    read: (at, area) => {
      const i = slotAt(at, area, days.length);
      const day = i === null ? undefined : days[i];
      if (i === null || !day) return null;
      const label = `${day.day}: ${plural(day.wins, "win")}, ${plural(day.draws, "draw")}, ${plural(day.losses, "loss", "losses")}`;
      return { x: area.left + ((i + 0.5) * (area.right - area.left)) / days.length, text: label };
    },
  });
  return element("div", {}, chart, resultsKey());
}

function resultsKey(): HTMLElement {
  const entries = [
    ["bar-win", "Wins"],
    ["bar-draw", "Draws"],
    ["bar-loss", "Losses"],
  ] as const;
  return element(
    "ul",
    { class: "key" },
    ...entries.map(([name, label]) => element("li", {}, element("i", { class: name }), label)),
  );
}

/** Counts per bin of equal width, labelled by where each bin begins. */
export function histogram(
  label: string,
  bins: readonly number[],
  width: number,
  unit: string,
  name = "bar-plain",
): HTMLElement {
  const most = Math.max(1, ...bins);
  return figure({
    label,
    height: 190,
    draw: (area) => {
      const { x, width: wide } = slots(area, bins.length);
      const y = scale([0, most], [area.bottom, area.top]);
      const grid = valueAxis(area, y, ticks([0, most], 3).filter(Number.isInteger), count);
      const bars = bins.map((value, i) => rect(x(i), y(value), wide, y(0) - y(value), name));
      return [
        ...grid,
        ...bars,
        ...slotLabels(
          area,
          bins.map((_, i) => `${count(i * width)} ${unit}`),
          56,
        ),
      ];
    },
    read: (at, area) => {
      const i = slotAt(at, area, bins.length);
      if (i === null) return null;
      const span = `${count(i * width)} to ${count((i + 1) * width)} ${unit}`;
      return {
        x: area.left + ((i + 0.5) * (area.right - area.left)) / bins.length,
        text: `${span}: ${count(bins[i] ?? 0)}`,
      };
    },
  });
}
