// Small drawings: a rating with its interval, expected against actual score, where the ball was, the sequential test.
import { svg } from "../../page/dom";
import { decimal, percent, plural, points, rated, signed } from "../format";
import type { SequentialTest, StrengthBin } from "../../api";
import { figure, line, px, rect, scale, text, valueAxis, type Range } from "./plot";

const BAR_WIDTH = 200;
const BAR_HEIGHT = 20;

/** A rating as a point in its 95 % interval, all bars of a table on one scale. */
export function intervalBar(rating: number, halfWidth: number, range: Range, provisional = false): SVGElement {
  const x = scale(range, [4, BAR_WIDTH - 4]);
  const clip = (value: number) => Math.min(BAR_WIDTH, Math.max(0, value));
  const [left, right] = [clip(x(rating - halfWidth)), clip(x(rating + halfWidth))];
  const span = rect(left, 5.5, right - left, 9, provisional ? "provisional" : "span");
  span.setAttribute("rx", "4.5");
  return svg(
    "svg",
    {
      class: "interval",
      viewBox: `0 0 ${BAR_WIDTH} ${BAR_HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `95 % interval ${points(rating - halfWidth)} to ${points(rating + halfWidth)}`,
    },
    line(0, 10, BAR_WIDTH, 10, "rule"),
    span,
    rect(clip(x(rating)) - 2, 2, 4, 16, "point"),
  );
}

/** Scores against opponents of rising strength: dots are what was scored, the dashed line what ratings predict. */
export function expectedChart(bins: readonly StrengthBin[]): HTMLElement {
  const played = bins.filter((bin) => bin.games > 0);
  const range: Range = [Math.min(...played.map((bin) => bin.low)), Math.max(...played.map((bin) => bin.high))];
  const middle = (bin: StrengthBin) => (bin.low + bin.high) / 2;
  const games = Math.max(...played.map((bin) => bin.games));
  return figure({
    label: `Expected and actual score by opponents' strength: ${played
      .map((b) => `rated about ${points(middle(b))}: expected ${percent(b.expected)}, actual ${percent(b.actual)}`)
      .join("; ")}`,
    height: 240,
    draw: (area) => {
      const x = scale(range, [area.left + 10, area.right - 10]);
      const y = scale([0, 1], [area.bottom, area.top]);
      const expected = played.map((bin) => `${px(x(middle(bin)))},${px(y(bin.expected))}`).join(" ");
      const dots = played.map((bin) =>
        svg("circle", {
          cx: px(x(middle(bin))),
          cy: px(y(bin.actual)),
          r: px(4 + 5 * Math.sqrt(bin.games / games)),
          class: "dot",
        }),
      );
      const labels = played.map((bin) => text(x(middle(bin)), area.bottom + 20, points(middle(bin)), "middle"));
      return [
        ...valueAxis(area, y, [0, 0.25, 0.5, 0.75, 1], (value) => percent(value)),
        svg("polyline", { points: expected, class: "line thin" }),
        ...dots,
        ...labels,
      ];
    },
    read: (at, area) => {
      const x = scale(range, [area.left + 10, area.right - 10]);
      const [found] = [...played].sort((a, b) => Math.abs(x(middle(a)) - at) - Math.abs(x(middle(b)) - at));
      if (!found) return null;
      const label = `rated ${points(found.low)} to ${points(found.high)}: ${percent(found.actual)} of ${plural(found.games, "game")}, expected ${percent(found.expected)}`;
      return { x: x(middle(found)), text: label };
    },
    caption: "Dots: points taken, larger for more games. Dashed: what the ratings predict. Below: opponents' rating.",
  });
}

const PITCH_WIDTH = 620;
const PITCH_HEIGHT = 300;
const GOAL_HEIGHT = 76;

/** Where the ball was. Rows run from the far touchline to the near one; the player attacks to the right. */
export function heatMap(rows: readonly (readonly number[])[], label: string): HTMLElement {
  const columns = rows[0]?.length ?? 1;
  const most = Math.max(...rows.flat(), Number.EPSILON);
  const [wide, high] = [PITCH_WIDTH / columns, PITCH_HEIGHT / Math.max(1, rows.length)];
  const cells = rows.flatMap((row, r) =>
    row.map((value, c) => {
      const cell = rect(c * wide, r * high, wide, high, "");
      cell.setAttribute("fill-opacity", (0.92 * Math.sqrt(value / most)).toFixed(3));
      return cell;
    }),
  );
  const goalTop = (PITCH_HEIGHT - GOAL_HEIGHT) / 2;
  const lines = svg(
    "g",
    { class: "pitch" },
    rect(0, 0, PITCH_WIDTH, PITCH_HEIGHT, ""),
    line(PITCH_WIDTH / 2, 0, PITCH_WIDTH / 2, PITCH_HEIGHT, ""),
    svg("circle", { cx: String(PITCH_WIDTH / 2), cy: String(PITCH_HEIGHT / 2), r: "44" }),
    rect(-14, goalTop, 14, GOAL_HEIGHT, ""),
    rect(PITCH_WIDTH, goalTop, 14, GOAL_HEIGHT, ""),
  );
  const picture = svg(
    "svg",
    { viewBox: `-16 -2 ${PITCH_WIDTH + 32} ${PITCH_HEIGHT + 4}`, role: "img", "aria-label": label },
    svg("g", { class: "heat" }, ...cells),
    lines,
  );
  const root = document.createElement("figure");
  root.className = "chart";
  root.append(picture);
  return root;
}

/** How far the sequential test has come from its start towards either end. */
export function testChart(test: SequentialTest): HTMLElement {
  const [lower, upper] = test.state === "worse" ? ["worse", "not worse"] : ["not better", "better"];
  return figure({
    label: `Log likelihood ratio ${decimal(test.llr)}; the test ends at ${decimal(test.lower)} or ${decimal(test.upper)}`,
    height: 84,
    margin: { left: 14, right: 14, top: 8, bottom: 34 },
    draw: (area) => {
      const x = scale([test.lower, test.upper], [area.left, area.right]);
      const clipped = Math.min(test.upper, Math.max(test.lower, test.llr));
      const [from, to] = [Math.min(x(0), x(clipped)), Math.max(x(0), x(clipped))];
      const name = test.llr >= 0 ? "bar-win" : "bar-loss";
      return [
        line(area.left, 25, area.right, 25, "axis"),
        rect(from, 19, to - from, 12, name),
        ...[test.lower, 0, test.upper].map((value) => line(x(value), 12, x(value), 38, "axis")),
        svg("circle", { cx: px(x(clipped)), cy: "25", r: "7", class: "dot" }),
        text(area.left, area.bottom + 20, lower, "start"),
        text(area.right, area.bottom + 20, upper, "end"),
      ];
    },
    caption: `Evidence ${decimal(test.llr)}: the test ends at ${decimal(test.lower)} or ${decimal(test.upper)}.`,
  });
}

/** A difference with its interval around zero. */
export function differenceChart(difference: number, halfWidth: number): HTMLElement {
  const reach = Math.max(50, (Math.abs(difference) + halfWidth) * 1.15);
  return figure({
    label: `Difference ${signed(difference)}, 95 % interval ${signed(difference - halfWidth)} to ${signed(difference + halfWidth)}`,
    height: 84,
    margin: { left: 14, right: 14, top: 8, bottom: 34 },
    draw: (area) => {
      const x = scale([-reach, reach], [area.left, area.right]);
      const y = 25;
      return [
        line(area.left, y, area.right, y, "grid"),
        line(x(0), 8, x(0), 42, "axis"),
        line(x(difference - halfWidth), y, x(difference + halfWidth), y, "whisker"),
        line(x(difference - halfWidth), y - 7, x(difference - halfWidth), y + 7, "whisker"),
        line(x(difference + halfWidth), y - 7, x(difference + halfWidth), y + 7, "whisker"),
        svg("circle", { cx: px(x(difference)), cy: px(y), r: "7", class: "dot" }),
        text(x(0), area.bottom + 20, "equal", "middle"),
        text(area.left, area.bottom + 20, signed(-reach), "start"),
        text(area.right, area.bottom + 20, signed(reach), "end"),
      ];
    },
    caption: `${rated(difference, halfWidth)} points`,
  });
}
