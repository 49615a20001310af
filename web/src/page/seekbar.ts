// The time line: where the ball was at every moment, marks for goals and kicks, and a slider over them.
import { GOAL_LINE_X } from "../game/field";
import { ballChannels } from "../game/scene";
import type { Match } from "../replay/replay";
import { element, formatTime, svg, teamMark } from "./dom";
import type { Part, View } from "./view";

const GRAPH_POINTS = 300;

export function seekbar(onSeek: (seconds: number) => void): Part {
  const slider = element("input", { type: "range", min: "0", step: "0.02", "aria-label": "Moment of the match" });
  slider.addEventListener("input", () => onSeek(Number(slider.value)));
  const track = element("div", { class: "track", "aria-hidden": "true" });
  const played = element("div", { class: "played", "aria-hidden": "true" });
  const root = element("div", { class: "seekbar" }, track, played, slider);
  let shownMatch: Match | null = null;
  return {
    root,
    update({ match, player }: View): void {
      const duration = player.duration ?? player.time;
      if (match !== shownMatch) {
        shownMatch = match;
        slider.max = String(duration);
        track.replaceChildren(ballGraph(match), ...goalMarks(match));
      }
      slider.value = String(player.time);
      slider.setAttribute("aria-valuetext", `${formatTime(player.time)} of ${formatTime(duration)}`);
      const share = duration > 0 ? player.time / duration : 0;
      played.style.setProperty("--share", share.toFixed(5));
    },
  };
}

/** Above the middle while the ball is in blue's half of attack, below in the other's; kicks are ticks at the edges. */
function ballGraph(match: Match): SVGElement {
  const [x] = ballChannels(match);
  const heights = Array.from({ length: GRAPH_POINTS + 1 }, (_, i) => {
    const tick = Math.round((i / GRAPH_POINTS) * match.ticks);
    return Math.max(-1, Math.min(1, x[tick] / GOAL_LINE_X));
  });
  const area = (team: 0 | 1): SVGElement => {
    const points = heights.map(
      (height, i) => `${i},${(20 - 14 * (team === 0 ? Math.max(0, height) : Math.min(0, height))).toFixed(1)}`,
    );
    return svg("path", { d: `M0,20 L${points.join(" L")} L${GRAPH_POINTS},20 Z`, class: `area team-${team}` });
  };
  const kicks = (team: 0 | 1): SVGElement => {
    const marks = match.events
      .filter((event) => event.kind === "kick" && event.team === team)
      .map(
        (event) =>
          `M${((event.tick / Math.max(1, match.ticks)) * GRAPH_POINTS).toFixed(1)},${team === 0 ? "1v4" : "35v4"}`,
      );
    return svg("path", { d: marks.join(""), class: `kicks team-${team}` });
  };
  const graph = svg("svg", { viewBox: `0 0 ${GRAPH_POINTS} 40`, preserveAspectRatio: "none" });
  graph.append(area(0), area(1), kicks(0), kicks(1));
  return graph;
}

function goalMarks(match: Match): HTMLElement[] {
  return match.events
    .filter((event) => event.kind === "goal")
    .map((event) => {
      const mark = element("span", { class: "goal-mark" }, teamMark(event.team));
      mark.style.left = `clamp(8px, ${(100 * event.tick) / Math.max(1, match.ticks)}%, calc(100% - 8px))`;
      return mark;
    });
}
