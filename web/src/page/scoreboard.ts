// Names, score and clock.
import { element, formatTime, setText, teamMark } from "./dom";
import type { Part, View } from "./view";

export function scoreboard(): Part {
  const teams = ([0, 1] as const).map((team) => {
    const name = element("span", { class: "name" });
    const side = element("span", { class: "side" });
    return {
      name,
      side,
      root: element(
        "div",
        { class: `team team-${team}` },
        teamMark(team),
        element("div", { class: "names" }, name, side),
      ),
    };
  });
  const points = [element("b"), element("b")];
  const clock = element("span", { class: "clock" });
  const score = element("div", { class: "score" });
  score.append(points[0], element("i", { "aria-hidden": "true" }, ":"), points[1]);
  const root = element("section", { class: "scoreboard", "aria-label": "Score" });
  root.append(teams[0].root, element("div", { class: "middle" }, score, clock), teams[1].root);
  return {
    root,
    update(view: View): void {
      const { match, palette, player } = view;
      root.classList.toggle("swapped", view.swapped);
      teams.forEach((team, i) => {
        setText(team.name, match.names[i]);
        team.name.title = match.names[i];
        setText(team.side, palette.teams[i].name);
        setText(points[i], String(view.score[i]));
      });
      const whole = player.duration === null ? "" : ` / ${formatTime(player.duration)}`;
      setText(clock, `${formatTime(player.time)}${whole}`);
    },
  };
}
