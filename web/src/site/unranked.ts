// Models without a row of their own on the board: in what state they are, and why.
import { element } from "../page/dom";
import { short } from "./format";
import { modelLink } from "./links";
import { modelCell, stateTag, tag, timeAgo } from "./parts";
import type { Unranked } from "../api";
import type { Column, TableOptions } from "./table";

/** ofAll: of every environment, so that lines say which. */
export function unrankedTable(ofAll: boolean): TableOptions<Unranked> {
  const environment: Column<Unranked> = { name: "Environment", optional: true, cell: (line) => line.env };
  return {
    label: "Models that are not ranked",
    limit: 50,
    key: (line) => `${line.repo} ${line.env}`,
    columns: [
      { name: "Model", header: true, by: (line) => line.repo.toLowerCase(), cell: model },
      { name: "State", optional: true, by: stateWord, cell: state },
      { name: "Why, and what to do", cell: reason },
      ...(ofAll ? [environment] : []),
      {
        name: "Since",
        optional: true,
        descending: true,
        by: (line) => line.since_ms,
        cell: (line) => timeAgo(line.since_ms),
      },
    ],
  };
}

function model(line: Unranked): HTMLElement {
  return modelCell(line.repo, element("span", { class: "only-narrow" }, " ", state(line)));
}

function stateWord(line: Unranked): string {
  if (line.same_as !== null) return "same player";
  return line.state === "accepted" ? "unrated" : line.state;
}

function state(line: Unranked): HTMLElement {
  return line.state === "accepted" ? tag(stateWord(line), "wait") : stateTag(line.state);
}

function reason(line: Unranked): HTMLElement {
  const parts: Node[] = [element("span", {}, line.sentence)];
  if (line.remedy) parts.push(element("small", {}, line.remedy));
  if (line.code) parts.push(element("small", {}, element("code", {}, line.code), ` revision ${short(line.revision)}`));
  if (line.same_as) parts.push(samePlayer(line.same_as));
  return element("span", { class: "model" }, ...parts);
}

/** Leads to the repository under whose name the player stands. */
function samePlayer(repo: string): HTMLElement {
  return element("small", {}, "Its results: ", element("a", { href: modelLink(repo) }, repo));
}
