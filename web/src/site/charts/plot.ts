// What all charts share: scales, ticks, axes, and a figure that is drawn again when its width changes.
import { element, svg } from "../../page/dom";

export type Range = readonly [low: number, high: number];

export interface Area {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Maps a range of values to a range of pixels. */
export function scale([low, high]: Range, [from, to]: Range): (value: number) => number {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

/** Round numbers inside a range, about `wanted` of them: steps of 1, 2 or 5 times a power of ten. */
export function ticks([low, high]: Range, wanted: number): number[] {
  const raw = (high - low || 1) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10);
  const first = Math.ceil(low / step);
  const last = Math.floor(high / step);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** How such numbers are written: with the digits that tell them apart. */
export function tickLabel(values: readonly number[]): (value: number) => string {
  const largest = Math.max(...values.map(Math.abs));
  const step = Math.abs((values[1] ?? 0) - (values[0] ?? 0)) || largest || 1;
  const digitsOf = (unit: number) => Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  const unit = 1000 ** Math.floor(Math.log10(largest || 1) / 3);
  const format = new Intl.NumberFormat(
    "en",
    largest >= 10_000
      ? { notation: "compact", maximumFractionDigits: digitsOf(unit) }
      : largest > 0 && largest < 0.0005
        ? { notation: "scientific", maximumFractionDigits: digitsOf(10 ** Math.floor(Math.log10(largest))) }
        : { maximumFractionDigits: digitsOf(1) },
  );
  return (value) => format.format(value).replace("-", "−");
}

/** A range with some room around its values. */
export function padded(values: readonly number[], share: number, least: number): Range {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = Math.max((high - low) * share, (least - (high - low)) / 2, 0);
  return [low - room, high + room];
}

export function text(x: number, y: number, content: string, anchor: "start" | "middle" | "end", name = ""): SVGElement {
  const made = svg("text", { x: px(x), y: px(y), "text-anchor": anchor, ...(name ? { class: name } : {}) });
  made.textContent = content;
  return made;
}

export function line(x1: number, y1: number, x2: number, y2: number, name: string): SVGElement {
  return svg("line", { x1: px(x1), y1: px(y1), x2: px(x2), y2: px(y2), class: name });
}

export function rect(x: number, y: number, width: number, height: number, name: string): SVGElement {
  const size = { width: px(Math.max(0, width)), height: px(Math.max(0, height)) };
  return svg("rect", { x: px(x), y: px(y), ...size, class: name });
}

/** `M x,y L x,y …` through points given in pixels. */
export function pathThrough(points: readonly (readonly [number, number])[]): string {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${px(x)},${px(y)}`).join("");
}

export function px(value: number): string {
  return String(Math.round(value * 10) / 10);
}

/** Horizontal grid with labels at its left. */
export function valueAxis(
  area: Area,
  at: (value: number) => number,
  values: readonly number[],
  label: (v: number) => string,
) {
  return values.flatMap((value) => [
    line(area.left, at(value), area.right, at(value), "grid"),
    text(area.left - 8, at(value) + 4, label(value), "end"),
  ]);
}

const MINUTE_MS = 60_000;
const DAY = 24 * 60;
/** Minutes between two labels. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, ...[1, 2, 5, 7, 14, 30, 60, 120, 365].map((n) => n * DAY)];
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const localDay = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
const monthDay = new Intl.DateTimeFormat("en", { month: "short", day: "numeric", timeZone: "UTC" });

/** Whole minutes, hours or days of the reader's clock inside a range, at most about `wanted` of them. */
function moments([low, high]: Range, wanted: number): number[] {
  const raw = (high - low) / wanted / MINUTE_MS;
  const step = STEPS.find((minutes) => minutes >= raw) ?? Math.ceil(raw / DAY) * DAY;
  // Counted by clock and calendar: where clocks are changed, a day has 23 hours or 25.
  const at = (i: number) => new Date(low).setHours(0, i * step, 0, 0);
  const found = new Set<number>();
  for (let i = 0; at(i) <= high; i++) if (at(i) >= low) found.add(at(i));
  return found.size ? [...found] : [low];
}

/** Labels along the bottom, the outer ones inside the chart. */
export function timeAxis(area: Area, at: (value: number) => number, range: Range): SVGElement[] {
  const wanted = Math.max(3, Math.min(6, Math.floor((area.right - area.left) / 130)));
  return moments(range, wanted).map((value) => {
    const x = at(value);
    const anchor = x < area.left + 22 ? "start" : x > area.right - 22 ? "end" : "middle";
    const isMidnight = new Date(value).setHours(0, 0, 0, 0) === value;
    return text(x, area.bottom + 20, (isMidnight ? localDay : clock).format(value), anchor);
  });
}

/** Labels of days along the bottom, as many as have room; `day` is YYYY-MM-DD. */
export function dayAxis(area: Area, at: (ms: number) => number, days: readonly string[]): SVGElement[] {
  const every = Math.ceil(days.length / Math.max(1, Math.floor((area.right - area.left) / 90)));
  const shown = days.filter((_, i) => (days.length - 1 - i) % every === 0);
  return shown.map((day) => {
    const x = at(Date.parse(day));
    return text(x, area.bottom + 20, monthDay.format(Date.parse(day)), x > area.right - 30 ? "end" : "middle");
  });
}

export interface Figure {
  /** Says in words what the chart shows: the alternative for those who cannot see it. */
  readonly label: string;
  readonly height: number;
  readonly margin?: Partial<Area>;
  readonly draw: (area: Area) => readonly SVGElement[];
  /** The text for the point nearest to x, in pixels, and where that point is. */
  readonly read?: (x: number, area: Area) => { x: number; text: string } | null;
  readonly caption?: string;
}

export function figure(spec: Figure): HTMLElement {
  const picture = svg("svg", { role: "img", "aria-label": spec.label, height: String(spec.height) });
  const root = element("figure", { class: "chart" });
  root.append(picture);
  if (spec.caption) root.append(element("figcaption", {}, spec.caption));
  const area: { now: Area } = { now: areaOf(spec, 640) };
  const draw = () => {
    const width = root.clientWidth || 640;
    area.now = areaOf(spec, width);
    picture.setAttribute("viewBox", `0 0 ${width} ${spec.height}`);
    picture.replaceChildren(...spec.draw(area.now));
  };
  new ResizeObserver(draw).observe(root);
  draw();
  if (spec.read) attachReadout(root, picture, spec.read, () => area.now);
  return root;
}

function areaOf({ height, margin = {} }: Figure, width: number): Area {
  const { left = 46, right = 8, top = 10, bottom = 30 } = margin;
  return { left, right: width - right, top, bottom: height - bottom };
}

/** A line and a text that follow the pointer. */
function attachReadout(
  root: HTMLElement,
  picture: SVGElement,
  read: NonNullable<Figure["read"]>,
  areaNow: () => Area,
): void {
  const label = element("div", { class: "readout", hidden: true });
  const cursor = line(0, 0, 0, 0, "cursor");
  root.append(label);
  picture.addEventListener("pointermove", (event) => {
    const area = areaNow();
    const found = read(event.clientX - picture.getBoundingClientRect().left, area);
    label.hidden = found === null;
    if (!found) return cursor.remove();
    label.textContent = found.text;
    const room = root.clientWidth - label.offsetWidth;
    label.style.left = `${Math.max(0, Math.min(room, found.x - label.offsetWidth / 2))}px`;
    for (const [name, value] of Object.entries({ x1: found.x, x2: found.x, y1: area.top, y2: area.bottom })) {
      cursor.setAttribute(name, px(value));
    }
    picture.append(cursor);
  });
  picture.addEventListener("pointerleave", () => {
    label.hidden = true;
    cursor.remove();
  });
}
