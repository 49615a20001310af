// What happened up to the moment shown, as text, the newest on top.
import { scoreAt } from "../game/scene";
import { element, formatTime, teamMark } from "../page/dom";
import { describeEvent, type Part } from "../page/view";

export function eventLog(): Part {
  const empty = element("li", { class: "empty" }, "Nothing has happened yet.");
  // A scrolling region must be reachable by keyboard.
  const list = element("ol", { tabindex: "0", "aria-label": "Events, the newest first" }, empty);
  let told = 0;
  return {
    root: element("section", { class: "panel events" }, element("h2", {}, "Events"), list),
    update(view) {
      const { match, player } = view;
      for (; told < match.events.length && match.events[told].tick <= player.tick; told++) {
        const event = match.events[told];
        const line = element(
          "li",
          { class: `event ${event.kind}` },
          element("time", {}, formatTime(event.tick / match.frameHz)),
          teamMark(event.team),
          element("span", {}, describeEvent(view, event)),
        );
        if (event.kind === "goal") line.append(element("b", {}, scoreAt(match, event.tick).join(":")));
        empty.remove();
        list.prepend(line);
      }
    },
  };
}
