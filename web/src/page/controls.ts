// The row of buttons under the pitch.
import { SPEEDS } from "../game/player";
import { element, icon, type IconName } from "./dom";
import type { Part, View } from "./view";
import type { Viewer } from "./viewer";

function button(name: IconName, label: string, key: string, act: () => void): HTMLButtonElement {
  const made = element("button", { type: "button", "aria-label": label, title: `${label} (${key})` }, icon(name));
  made.addEventListener("click", act);
  return made;
}

export function controls(viewer: Viewer): Part {
  const play = element("button", { type: "button", class: "play" });
  play.addEventListener("click", () => viewer.togglePlay());
  const speed = element("select", { "aria-label": "Speed", title: "Speed (↑ ↓)" });
  speed.append(...SPEEDS.map((value) => element("option", { value: String(value) }, `${value}×`)));
  speed.addEventListener("change", () => viewer.setSpeed(Number(speed.value)));
  const toggles = {
    raysOf: button("rays", "Sensors", "R", () => viewer.toggleRays(viewer.raysOf ?? viewer.lastRaysOf)),
    trails: button("trails", "Trails", "T", () => viewer.toggleTrails()),
    follow: button("follow", "Follow the ball", "F", () => viewer.toggleFollow()),
    swapped: button("swap", "Swap sides", "S", () => viewer.toggleSwap()),
  };
  const solid = button("solid", "3-D view", "D", () => void viewer.toggleSolid());
  solid.hidden = !viewer.canBeSolid;
  const film = button("film", "Record a video", "V", () => viewer.toggleFilm());
  const colours = button("palette", "Other colours", "C", () => viewer.togglePalette());
  const root = element("div", { class: "controls", role: "group", "aria-label": "Playback" });
  root.append(
    element(
      "div",
      { class: "group" },
      button("back", "One frame back", ",", () => viewer.step(-1)),
      play,
      button("forward", "One frame forward", ".", () => viewer.step(1)),
      speed,
    ),
    element("div", { class: "group" }, ...Object.values(toggles), solid, colours),
    element(
      "div",
      { class: "group" },
      film,
      button("link", "Copy a link to this moment", "L", () => void viewer.copyLink()),
      button("fullscreen", "Full screen", "X", () => void viewer.toggleFullscreen()),
      button("help", "Keys and help", "?", () => viewer.showHelp()),
    ),
  );
  let shownIcon: IconName | null = null;
  return {
    root,
    update(view: View): void {
      const wanted: IconName = view.player.playing ? "pause" : view.player.finished ? "restart" : "play";
      if (wanted !== shownIcon) {
        shownIcon = wanted;
        const label = { pause: "Pause", play: "Play", restart: "Play again" }[wanted as "pause" | "play" | "restart"];
        play.replaceChildren(icon(wanted));
        play.setAttribute("aria-label", label);
        play.title = `${label} (Space)`;
      }
      if (speed.value !== String(view.player.speed)) speed.value = String(view.player.speed);
      toggles.raysOf.setAttribute("aria-pressed", String(view.raysOf !== null));
      solid.setAttribute("aria-pressed", String(view.solid));
      film.setAttribute("aria-pressed", String(view.filming));
      toggles.trails.setAttribute("aria-pressed", String(view.trails));
      toggles.follow.setAttribute("aria-pressed", String(view.follow));
      toggles.swapped.setAttribute("aria-pressed", String(view.swapped));
      colours.setAttribute("aria-pressed", String(view.palette.id === "contrast"));
    },
  };
}
