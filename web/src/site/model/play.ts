// Parts of the model page about how it plays: sides, goals, the ball.
import { element } from "../../page/dom";
import { histogram } from "../charts/bars";
import { heatMap } from "../charts/marks";
import { percent, plural, seconds } from "../format";
import { box, facts, note, shareBar, sideName, tallyText } from "../parts";
import { placeholder } from "../shell";
import type { Goals, Performance, PlayStats, Tally } from "../../api";

export function sidesBox({ blue, purple, sides }: Performance): HTMLElement {
  const line = (side: "blue" | "purple", tally: Tally) =>
    element(
      "div",
      {},
      element(
        "p",
        { class: "side-line" },
        sideName(side, sides),
        element("span", { class: "dim" }, tallyText(tally.games, tally.share)),
      ),
      shareBar(tally.wins, tally.draws, tally.losses),
    );
  const text = "Every unit is a mirrored pair, so both sides are played equally often.";
  return box("By side", text, line("blue", blue), line("purple", purple));
}

export function playBox(play: PlayStats | null): HTMLElement {
  if (play === null)
    return box("Play", "", placeholder("No replays looked at yet", ["They are measured a while after the match."]));
  const numbers = facts([
    { name: "Possession", value: percent(play.possession), under: "of both teams' time on the ball" },
    { name: "Shots", value: play.shots_per_match.toFixed(1), under: "per match" },
    { name: "Distance", value: `${Math.round(play.distance_m_per_match)} m`, under: "per match, the team" },
  ]);
  const label = `Where the ball was in ${plural(play.matches, "match", "matches")}; this model attacks to the right`;
  const text = `From ${plural(play.matches, "replay")}. Where the ball was; this model attacks to the right.`;
  return box("Play", text, heatMap(play.ball_heat, label), numbers);
}

/** Of games whose replays are videos: nothing but the counts is known. */
export function fragsBox(goals: Goals): HTMLElement {
  const numbers = facts([
    { name: "Own", value: String(goals.scored), under: "opponents shot, less own accidents" },
    { name: "Opponents’", value: String(goals.conceded), under: "in the same matches" },
  ]);
  return box("Frags", "", numbers);
}

export function goalsBox(goals: Goals): HTMLElement {
  const after = (mean: number | null) => (mean === null ? "" : `after ${seconds(mean)} on average`);
  const numbers = facts([
    { name: "Scored", value: String(goals.scored), under: after(goals.mean_scored_s) },
    { name: "Conceded", value: String(goals.conceded), under: after(goals.mean_conceded_s) },
  ]);
  if (goals.scored + goals.conceded === 0) return box("Goals", "", numbers, note("No goals yet."));
  const label = (word: string, number: number) => `Time until a goal was ${word}: ${plural(number, "goal")}`;
  return box(
    "Goals",
    "How long it took until the goal.",
    numbers,
    element("h3", {}, "Scored, seconds since kick-off"),
    histogram(label("scored", goals.scored), goals.scored_bins, goals.bin_s, "s", "bar-win"),
    element("h3", {}, "Conceded, seconds since kick-off"),
    histogram(label("conceded", goals.conceded), goals.conceded_bins, goals.bin_s, "s", "bar-loss"),
  );
}
