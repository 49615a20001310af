// Several curves in one chart, each with a colour of its own and, where it is known, the band of its interval.
import { svg } from "../../page/dom";
import { brief } from "../format";
import { figure, padded, pathThrough, px, scale, text, tickLabel, ticks, valueAxis, type Area, type Range } from "./plot";

export interface Point {
  readonly x: number;
  readonly y: number;
  readonly low?: number;
  readonly high?: number;
}

export interface Line {
  readonly name: string;
  /** Of the palette: `series-0` and so on. */
  readonly colour: string;
  readonly points: readonly Point[];
}

export interface LinesChart {
  /** What the values are. */
  readonly name: string;
  readonly lines: readonly Line[];
  readonly x: (value: number) => string;
  readonly height?: number;
  readonly caption?: string;
}

export function linesChart({ name, lines, x: labelX, height = 220, caption }: LinesChart): HTMLElement {
  const all = lines.flatMap(({ points }) => points);
  if (!all.length) throw new RangeError("a chart of lines needs at least one point");
  const xs: Range = [Math.min(...all.map(({ x }) => x)), Math.max(...all.map(({ x }) => x))];
  const values = all.flatMap(({ y, low = y, high = y }) => [y, low, high]);
  const ys = padded(values, 0.08, Math.max(...values.map(Math.abs)) * 1e-3 || 1);
  const scales = (area: Area) => [scale(xs, [area.left, area.right]), scale(ys, [area.bottom, area.top])] as const;
  const ends = lines.map(({ name: who, points }) => `${who} ${brief(points.at(-1)?.y ?? null)}`);
  return figure({
    label: `${name}: ${ends.join(", ")} at last`,
    height,
    ...(caption ? { caption } : {}),
    margin: { left: 54 },
    draw: (area) => {
      const [x, y] = scales(area);
      const wanted = Math.max(1, Math.floor((area.right - area.left) / 80));
      const below = ticks(xs, wanted).map((value) => text(x(value), area.bottom + 20, labelX(value), "middle"));
      const levels = ticks(ys, 4);
      return [...valueAxis(area, y, levels, tickLabel(levels)), ...below, ...lines.flatMap((line) => drawn(line, x, y))];
    },
    read: (at, area) => {
      const [x] = scales(area);
      const nearest = all.reduce((best, point) => (Math.abs(x(point.x) - at) < Math.abs(x(best.x) - at) ? point : best));
      const said = lines.flatMap(({ name: who, points }) => {
        const own = points.filter((point) => point.x <= nearest.x).at(-1);
        return own ? [`${lines.length > 1 ? `${who} ` : ""}${brief(own.y)}${interval(own)}`] : [];
      });
      return { x: x(nearest.x), text: `${labelX(nearest.x)}: ${said.join(" · ")}` };
    },
  });
}

function interval({ low, high }: Point): string {
  return low === undefined || high === undefined ? "" : ` (${brief(low)} to ${brief(high)})`;
}

function drawn({ points, colour }: Line, x: (v: number) => number, y: (v: number) => number): SVGElement[] {
  const banded = points.filter(({ low, high }) => low !== undefined && high !== undefined);
  const upper = banded.map((point) => [x(point.x), y(point.high ?? point.y)] as const);
  const lower = banded.map((point) => [x(point.x), y(point.low ?? point.y)] as const).reverse();
  const last = points.at(-1);
  const parts = [svg("path", { d: pathThrough(points.map((p) => [x(p.x), y(p.y)])), class: `line ${colour}` })];
  if (banded.length > 1) {
    parts.unshift(svg("path", { d: `${pathThrough([...upper, ...lower])}Z`, class: `band ${colour}` }));
  }
  if (last) parts.push(svg("circle", { cx: px(x(last.x)), cy: px(y(last.y)), r: "3.5", class: `dot ${colour}` }));
  return parts;
}
