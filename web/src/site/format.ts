// Numbers and times as people read them. Missing values are a dash.
import { now } from "./clock";

const DASH = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const tiny = new Intl.NumberFormat("en", { notation: "scientific", maximumSignificantDigits: 2 });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const date = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

export function count(value: number): string {
  return whole.format(value);
}

/** `1 match`, `2 matches`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function points(value: number | null): string {
  return value === null ? DASH : String(Math.round(value)).replace("-", "−");
}

export function signed(value: number | null): string {
  if (value === null) return DASH;
  const rounded = Math.round(value);
  return rounded > 0 ? `+${rounded}` : rounded < 0 ? `−${-rounded}` : "0";
}

export function rated(value: number | null, halfWidth: number | null): string {
  return halfWidth === null ? points(value) : `${points(value)} ± ${points(halfWidth)}`;
}

export function decimal(value: number): string {
  return value.toFixed(2).replace("-", "−");
}

export function percent(share: number | null, digits = 0): string {
  return share === null ? DASH : `${(100 * share).toFixed(digits)} %`;
}

export function seconds(value: number | null): string {
  if (value === null) return DASH;
  const tenths = Math.round(10 * value) / 10;
  if (tenths < 60) return `${tenths.toFixed(1)} s`;
  const rounded = Math.round(value);
  return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
}

/** A time to wait or that has passed, as long as it is: `40 s`, `12 min`, `3 h 5 min`. */
export function duration(value: number | null): string {
  if (value === null) return DASH;
  const minutes = Math.round(value / 60);
  if (minutes < 2) return `${Math.round(value)} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A number of any size in few characters: `12.4M`, `0.031`. */
export function brief(value: number | null): string {
  if (value === null) return DASH;
  const size = Math.abs(value);
  const format = size >= 10_000 ? compact : size >= 100 ? whole : size < 0.0005 && size > 0 ? tiny : precise;
  return format.format(value).replace("-", "−");
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1e3).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}

/** With their lengths, and from how many on the next one is told. */
const UNITS: readonly (readonly [unit: Intl.RelativeTimeFormatUnit, ms: number, most: number])[] = [
  ["minute", 60_000, 60],
  ["hour", 3_600_000, 24],
  ["day", 86_400_000, Infinity],
];

/** `3 hours ago`. */
export function ago(ms: number | null, nowMs = now()): string {
  if (ms === null) return DASH;
  const past = nowMs - ms;
  const whole = Math.round(past / 1000);
  if (Math.abs(whole) < 60) return whole < 5 ? "just now" : `${whole} s ago`;
  const [unit, length] = UNITS.find(([, ms, most]) => Math.abs(Math.round(past / ms)) < most) ?? ["day", 86_400_000];
  return relative.format(-Math.round(past / length), unit);
}

export function moment(ms: number | null): string {
  return ms === null ? DASH : date.format(ms);
}

/** The start of a hash, enough to tell files and commits apart. */
export function short(hash: string): string {
  return hash.slice(0, 8);
}
