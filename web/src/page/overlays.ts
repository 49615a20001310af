// What lies over the pitch and the page: the goal banner, the large play button, short notices, the help.
import { BANNER_S } from "../game/celebration";
import type { Pitch, Team } from "../replay/pitch";
import { commandsOf } from "./commands";
import { element, icon, setText, teamMark } from "./dom";
import type { Part, View } from "./view";
import type { Viewer } from "./viewer";

export function goalBanner(): Part {
  const team = element("span", { class: "banner-team" });
  const root = element("div", { class: "banner", "aria-hidden": "true" }, element("strong", {}, "Goal!"), team);
  return {
    root,
    update({ player, match, palette, score, swapped }: View): void {
      const celebration = player.celebration;
      const shown = celebration !== null && (celebration.elapsed < BANNER_S || player.finished);
      root.classList.toggle("shown", shown);
      if (!celebration) return;
      root.classList.toggle("team-0", celebration.goal.team === 0);
      root.classList.toggle("team-1", celebration.goal.team === 1);
      setText(
        team,
        `${palette.teams[celebration.goal.team].name} · ${match.names[celebration.goal.team]} · ${(swapped ? score.toReversed() : score).join(":")}`,
      );
    },
  };
}

/** Shown until the first play, and again at the end. */
export function bigPlayButton(viewer: Viewer): Part {
  const root = element("button", { type: "button", class: "big-play", "aria-label": "Play" }, icon("play"));
  root.addEventListener("click", () => viewer.togglePlay());
  return {
    root,
    update({ player }: View): void {
      root.hidden = player.playing || player.time > 0;
    },
  };
}

export class Notice {
  readonly root = element("div", { class: "notice", role: "status" });
  private timer = 0;

  /** Until the next one. */
  keep(text: string): void {
    setText(this.root, text);
    this.root.classList.add("shown");
    window.clearTimeout(this.timer);
  }

  show(text: string): void {
    this.keep(text);
    this.timer = window.setTimeout(() => this.root.classList.remove("shown"), 1800);
  }
}

export function helpDialog(pitch: Pitch, withSolid: boolean): HTMLDialogElement {
  const rows = commandsOf(pitch).filter((command) => withSolid || !command.solid).map((command) =>
    element("li", {}, element("kbd", {}, command.shown), element("span", {}, command.does)),
  );
  const close = element("button", { class: "close" }, "Close");
  const marks = element(
    "p",
    {},
    teamMark(0),
    ` round with a ring: ${playersOf(pitch, 0)}.  `,
    teamMark(1),
    ` square with a diamond: ${playersOf(pitch, 1)}.`,
  );
  const text = element(
    "p",
    {},
    "Sensors: each player casts spheres around it, up to 20 m; the colour says what stopped them. " +
      "Around that player arrows show its choices, filled as far as they were probable, the one it took outlined; " +
      "so do the cards. After a goal the ball is shown running on into the net; " +
      "everything else is as it was played.",
  );
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", {}, "Keys"),
    element("ul", {}, ...rows),
    marks,
    text,
    close,
  );
  return element("dialog", { class: "help", "aria-label": "Keys and help" }, form);
}

function playersOf({ scenery }: Pitch, team: Team): string {
  const numbers = scenery.agents.flatMap((agent, i) => (agent.team === team ? [i + 1] : []));
  return `${numbers.length === 1 ? "player" : "players"} ${numbers.join(" and ")}`;
}
