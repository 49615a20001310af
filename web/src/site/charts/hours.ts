// Matches per hour over the last day.
import { count, plural } from "../format";
import type { HourCount } from "../../api";
import { figure, rect, scale, text, ticks, valueAxis } from "./plot";

const hour = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export function histogramOf(hours: readonly HourCount[]): HTMLElement {
  const most = Math.max(1, ...hours.map((each) => each.matches));
  const all = hours.reduce((sum, each) => sum + each.matches, 0);
  return figure({
    label: `Matches per hour: ${plural(all, "match", "matches")} in the last ${hours.length} hours`,
    height: 200,
    draw: (area) => {
      const step = (area.right - area.left) / Math.max(1, hours.length);
      const y = scale([0, most], [area.bottom, area.top]);
      const every = Math.max(1, Math.ceil(64 / step));
      const bars = hours.flatMap(({ start_ms, matches }, i) => {
        const x = area.left + i * step;
        const bar = rect(x + step * 0.14, y(matches), step * 0.72, y(0) - y(matches), "bar-plain");
        return i % every === 0 ? [bar, text(x + step / 2, area.bottom + 20, hour.format(start_ms), "middle")] : [bar];
      });
      return [...valueAxis(area, y, ticks([0, most], 4).filter(Number.isInteger), count), ...bars];
    },
    read: (at, area) => {
      const step = (area.right - area.left) / Math.max(1, hours.length);
      const found = Math.floor((at - area.left) / step);
      const each = hours[found];
      if (!each) return null;
      const label = `from ${hour.format(each.start_ms)}: ${plural(each.matches, "match", "matches")}`;
      return { x: area.left + (found + 0.5) * step, text: label };
    },
  });
}
