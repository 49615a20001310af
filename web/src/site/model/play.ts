// Parts of the model page about how it plays: sides, scores, what its game measures.
import { element } from "../../page/dom";
import { histogram } from "../charts/bars";
import { heatMap } from "../charts/marks";
import { percent, plural, seconds } from "../format";
import { box, facts, note, shareBar, sideName, tallyText } from "../parts";
import { placeholder } from "../shell";
import type { Scores, Performance, PlayNumber, PlayStats, Tally } from "../../api";

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
  const numbers = facts(play.numbers.map(({ name, under, ...shown }) => ({ name, under, value: inUnits(shown) })));
  const matches = plural(play.matches, "replay");
  if (play.ball_heat === null) return box("Play", `From ${matches}.`, numbers);
  const label = `Where the ball was in ${plural(play.matches, "match", "matches")}; this model attacks to the right`;
  const text = `From ${matches}. Where the ball was; this model attacks to the right.`;
  return box("Play", text, heatMap(play.ball_heat, label), numbers);
}

function inUnits({ value, unit, digits }: Omit<PlayNumber, "name" | "under">): string {
  return unit === "%" ? percent(value, digits) : `${value.toFixed(digits)}${unit && ` ${unit}`}`;
}

export function scoresBox(scores: Scores): HTMLElement {
  return scores.timed ? timedBox(scores) : countsBox(scores);
}

/** Where a match goes on after a score: nothing but the counts is known. */
function countsBox(scores: Scores): HTMLElement {
  const numbers = facts([
    { name: "Own", value: String(scores.scored), under: scores.note },
    { name: "Opponents’", value: String(scores.conceded), under: "in the same matches" },
  ]);
  return box(scores.word, "", numbers);
}

function timedBox(scores: Scores): HTMLElement {
  const after = (mean: number | null) => (mean === null ? "" : `after ${seconds(mean)} on average`);
  const numbers = facts([
    { name: "Scored", value: String(scores.scored), under: after(scores.mean_scored_s) },
    { name: "Conceded", value: String(scores.conceded), under: after(scores.mean_conceded_s) },
  ]);
  if (scores.scored + scores.conceded === 0) return box(scores.word, "", numbers, note("None yet."));
  const label = (word: string, number: number) => `Time until one was ${word}: ${number}`;
  return box(
    scores.word,
    "How long it took until the match was decided.",
    numbers,
    element("h3", {}, "Scored, seconds since the start"),
    histogram(label("scored", scores.scored), scores.scored_bins, scores.bin_s, "s", "bar-win"),
    element("h3", {}, "Conceded, seconds since the start"),
    histogram(label("conceded", scores.conceded), scores.conceded_bins, scores.bin_s, "s", "bar-loss"),
  );
}
