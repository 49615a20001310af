// Everything the arena knows, to take away.
import { element } from "../../page/dom";
import { downloadUrl, isExport } from "../data";
import { box, note } from "../parts";

interface Download {
  readonly title: string;
  readonly text: string;
  readonly files: readonly string[];
}

const DOWNLOADS: readonly Download[] = [
  {
    title: "Match log",
    text: "One row per match: players, revisions, seed, result, cause, score, length, hashes.",
    files: ["matches.csv", "matches.json", "matches.parquet"],
  },
  {
    title: "Ratings",
    text: "The board as it stands: rank ranges, ratings with intervals, Elo, openskill, games.",
    files: ["ratings.csv", "ratings.json", "ratings.parquet"],
  },
  {
    title: "History for other tools",
    text: "model1,model2,timestamp,result: the format that analytics of the AI vs. AI challenge read unchanged.",
    files: ["history.csv"],
  },
  {
    title: "Elo table for other tools",
    text: "rank,author,model,elo,games_played, computed by the same formula as the challenge: K 20, scale 500.",
    files: ["elo.csv"],
  },
];

export function downloads(env: string): Node[] {
  const boxes = DOWNLOADS.map(({ title, text, files }) => {
    const links = files.map((file) =>
      element("a", { class: "button", href: downloadUrl(env, file), download: `${env}-${file}` }, file),
    );
    return box(title, text, element("div", { class: "bar" }, ...links));
  });
  const live = note(
    "Files are made from the log when they are asked for; ",
    element("code", {}, "palus recompute"),
    " makes every number again from it.",
  );
  return [element("div", { class: "columns" }, ...boxes), ...(isExport ? [] : [live])];
}
