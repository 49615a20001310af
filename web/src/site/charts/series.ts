// A rating over time with its band, and a count over time as an area.
import { svg } from "../../page/dom";
import { count, moment, points, rated } from "../format";
import type { DayMatches, RatingPoint } from "../../api";
import {
  dayAxis,
  figure,
  padded,
  pathThrough,
  px,
  scale,
  ticks,
  timeAxis,
  valueAxis,
  type Area,
  type Range,
} from "./plot";

/** More points than this cannot be told apart on a screen. */
const MOST_POINTS = 600;

/** Every n-th of the points, the last one included. */
function thinned<Item>(items: readonly Item[]): readonly Item[] {
  const every = Math.ceil(items.length / MOST_POINTS);
  return items.filter((_, i) => (items.length - 1 - i) % every === 0);
}

function nearest<Item>(items: readonly Item[], at: (item: Item) => number, x: number): Item | null {
  let best: Item | null = null;
  for (const item of items) if (!best || Math.abs(at(item) - x) < Math.abs(at(best) - x)) best = item;
  return best;
}

export function ratingChart(all: readonly RatingPoint[]): HTMLElement {
  const series = thinned(all);
  const [first, last] = [series[0], series.at(-1)];
  if (!first || !last) throw new RangeError("a rating chart needs at least one point");
  const times: Range = [first.at_ms, Math.max(last.at_ms, first.at_ms + 60_000)];
  // The band of the first games is as wide as the prior; the scale follows the settled part.
  const settled = series.slice(Math.floor(series.length / 4));
  const values = padded(
    settled.flatMap((p) => [p.rating - p.half_width, p.rating + p.half_width]),
    0.06,
    80,
  );
  const scales = (area: Area) =>
    [scale(times, [area.left, area.right]), scale(values, [area.bottom, area.top])] as const;
  return figure({
    label: `Rating over time: ${points(first.rating)} at first, ${rated(last.rating, last.half_width)} now`,
    height: 260,
    draw: (area) => {
      const [x, y] = scales(area);
      const inside = (value: number) => Math.min(area.bottom, Math.max(area.top, y(value)));
      const upper = series.map((p) => [x(p.at_ms), inside(p.rating + p.half_width)] as const);
      const lower = series.map((p) => [x(p.at_ms), inside(p.rating - p.half_width)] as const).reverse();
      return [
        ...valueAxis(area, y, ticks(values, 5), points),
        ...timeAxis(area, x, times),
        svg("path", { d: `${pathThrough([...upper, ...lower])}Z`, class: "band" }),
        svg("path", { d: pathThrough(series.map((p) => [x(p.at_ms), inside(p.rating)])), class: "line" }),
        svg("circle", { cx: px(x(last.at_ms)), cy: px(y(last.rating)), r: "4.5", class: "dot" }),
      ];
    },
    read: (at, area) => {
      const [x] = scales(area);
      const found = nearest(series, (p) => x(p.at_ms), at);
      if (!found) return null;
      const label = `${rated(found.rating, found.half_width)} after ${count(found.games)} games, ${moment(found.at_ms)}`;
      return { x: x(found.at_ms), text: label };
    },
    caption: "The band is the 95 % interval; it was computed after each match from the log up to then.",
  });
}

/** Matches so far at the end of each day. */
export function cumulativeChart(days: readonly DayMatches[]): HTMLElement {
  const moments = days.map((day) => Date.parse(day.day));
  const start = Math.min(...moments) - 86_400_000;
  const times: Range = [start, Math.max(...moments)];
  const total = days.at(-1)?.cumulative ?? 0;
  const values: Range = [0, total * 1.05];
  return figure({
    label: `Rated matches so far, day by day: ${count(total)} at the end of ${plainDay(days.at(-1)?.day)}`,
    height: 240,
    margin: { left: 58 },
    draw: (area) => {
      const x = scale(times, [area.left, area.right]);
      const y = scale(values, [area.bottom, area.top]);
      const top = [
        [x(start), y(0)] as const,
        ...days.map((day, i) => [x(moments[i] ?? 0), y(day.cumulative)] as const),
      ];
      const outline = pathThrough(top);
      return [
        ...valueAxis(area, y, ticks(values, 4), count),
        ...dayAxis(
          area,
          x,
          days.map(({ day }) => day),
        ),
        svg("path", { d: `${outline}L${px(area.right)},${px(area.bottom)}Z`, class: "fill" }),
        svg("path", { d: outline, class: "line" }),
      ];
    },
    read: (at, area) => {
      const x = scale(times, [area.left, area.right]);
      const found = nearest(days, (day) => x(Date.parse(day.day)), at);
      if (!found) return null;
      const label = `${found.day}: ${count(found.cumulative)} matches, ${count(found.matches)} that day`;
      return { x: x(Date.parse(found.day)), text: label };
    },
  });
}

function plainDay(day: string | undefined): string {
  return day ?? "the season";
}
