// One card per agent: what it does at this decision and, when recorded, how likely each choice was.
import { chosenChoices, decisionAt } from "../game/scene";
import { teamOf, type Pitch } from "../replay/pitch";
import { NUM_CHOICES } from "../replay/replay";
import { element, setText, teamMark } from "./dom";
import { agentName, type Part, type View } from "./view";

/** By branch and choice; forward also arms the kick. */
const CHOICES: readonly (readonly [glyph: string, words: string])[] = [
  ["·", "no drive"],
  ["↑", "forward"],
  ["↓", "backward"],
  ["·", "no side step"],
  ["→", "to the right"],
  ["←", "to the left"],
  ["·", "no turn"],
  ["↺", "turn left"],
  ["↻", "turn right"],
];
const BRANCHES = ["Drive", "Side", "Turn"];

/** Who can show and hide an agent's sensors. */
export interface SensorSwitch {
  toggleRays(agent: number): void;
}

export function agentCards(viewer: SensorSwitch, pitch: Pitch): Part {
  const cards = pitch.scenery.agents.map((_, agent) => agentCard(viewer, pitch, agent));
  const root = element("section", { class: "agents", "aria-label": "Players" }, ...cards.map((card) => card.root));
  return { root, update: (view) => cards.forEach((card) => card.update(view)) };
}

function agentCard(viewer: SensorSwitch, pitch: Pitch, agent: number): Part {
  const name = element("span", { class: "agent-name" });
  const state = element("span", { class: "state" });
  const root = element("button", { type: "button", class: `card team-${teamOf(pitch, agent)}` });
  const cells = CHOICES.map(([glyph]) => element("span", { class: "choice" }, element("i"), element("b", {}, glyph)));
  const pad = element("span", { class: "pad", "aria-hidden": "true" });
  BRANCHES.forEach((branch, i) => {
    const row = element("span", { class: "branch" }, ...cells.slice(3 * i, 3 * i + 3), element("small", {}, branch));
    pad.append(row);
  });
  const number = element("kbd", { "aria-hidden": "true" }, String(agent + 1));
  root.append(element("span", { class: "head" }, teamMark(teamOf(pitch, agent)), name, state, number), pad);
  root.addEventListener("click", () => viewer.toggleRays(agent));
  let shown = "";
  return {
    root,
    update(view: View): void {
      const decision = decisionAt(view.match, view.player.tick);
      const selected = view.raysOf === agent;
      const key = [view.matchIndex, decision, selected, view.palette.id].join();
      if (key === shown) return;
      shown = key;
      setText(name, agentName(pitch, view.palette, agent));
      setText(state, selected ? "sensors on" : "");
      root.setAttribute("aria-pressed", String(selected));
      showDecision(view, agent, decision, cells);
      root.title = `Player ${agent + 1}: ${actionWords(view, agent, decision)}. Click for its sensors.`;
    },
  };
}

function actionWords(view: View, agent: number, decision: number): string {
  return chosenChoices(view.match, agent, decision)
    .map((choice) => CHOICES[choice][1])
    .join(", ");
}

function showDecision(view: View, agent: number, decision: number, cells: readonly HTMLElement[]): void {
  const choices = chosenChoices(view.match, agent, decision);
  cells.forEach((cell, choice) => {
    cell.classList.toggle("chosen", choices.includes(choice));
    const level = view.match.probabilities?.[NUM_CHOICES * agent + choice][decision] ?? 0;
    (cell.firstChild as HTMLElement).style.height = `${(level / 2.55).toFixed(0)}%`;
  });
}
