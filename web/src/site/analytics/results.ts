// The results of one team: numbers, bars per day, every game.
import { element } from "../../page/dom";
import { resultsPerDay } from "../charts/bars";
import { load, path } from "../data";
import { count, plural } from "../format";
import { compareHref, modelLink, parameter, writeParameters } from "../links";
import { box, facts, field, outcome, timeAgo, watchLink, type Content } from "../parts";
import { fill, placeholder } from "../shell";
import type { Analytics, TeamGame, TeamResults } from "../../api";
import { DataTable } from "../table";

export function results(analytics: Analytics): Node[] {
  const teams = analytics.teams.map((line) => line.team);
  const [first] = [...analytics.teams].sort((a, b) => b.wins + b.draws + b.losses - (a.wins + a.draws + a.losses));
  if (!first) {
    return [
      element(
        "section",
        { class: "box" },
        placeholder("No results yet", ["Teams appear here with their first rated match."]),
      ),
    ];
  }
  const place = element("div", { class: "content-part" });
  const missing = element("p", { class: "note", role: "status" });
  let shown = first.team;
  const show = (team: string) => {
    if (teams.includes(team)) shown = team;
    missing.textContent = team === shown ? "" : `There is no team “${team}” here. These are the results of ${shown}.`;
    missing.hidden = team === shown;
    writeParameters({ team: shown });
    // In an element of its own: an answer that comes after the next one was asked for shows nothing.
    const own = element("div", { class: "content-part" });
    place.replaceChildren(own);
    void fill(own, async () =>
      teamPage(await load<TeamResults>(path("analytics", analytics.env, ...shown.split("/"))), analytics.env),
    );
  };
  const asked = parameter("team") ?? shown;
  show(asked);
  return [element("div", { class: "bar" }, field("Team", teamInput(teams, shown, show), true)), missing, place];
}

/** Hundreds of names: a text field that completes them. */
function teamInput(teams: readonly string[], chosen: string, show: (team: string) => void): HTMLElement {
  const options = teams.map((team) => element("option", { value: team }));
  const list = element("datalist", { id: "teams" }, ...options);
  const input = element("input", { list: "teams", value: chosen, spellcheck: "false", autocomplete: "off" });
  input.addEventListener("focus", () => input.select());
  input.addEventListener("change", () => show(input.value));
  return element("span", {}, input, list);
}

function teamPage(team: TeamResults, env: string): Node[] {
  const games = team.wins + team.draws + team.losses;
  const numbers = facts([
    { name: "Wins", value: count(team.wins) },
    { name: "Draws", value: count(team.draws) },
    { name: "Losses", value: count(team.losses) },
    { name: "Win rate", value: `${team.win_rate.toFixed(2)} %`, under: `of ${plural(games, "game")}` },
    { name: "Competing since", value: timeAgo(team.since_ms) },
  ]);
  const page = element(
    "p",
    { class: "note" },
    element("a", { href: modelLink(team.team) }, `Rating, opponents and play of ${team.team}`),
  );
  return [numbers, box("Results per day", "", resultsPerDay(team.days)), gamesBox(team, games, env), page];
}

function gamesBox(team: TeamResults, games: number, env: string): HTMLElement {
  const table = new DataTable(
    {
      label: `Games of ${team.team}, newest first`,
      limit: 50,
      columns: [
        { name: "Result", header: true, by: (game: TeamGame) => game.result, cell: (game) => outcome(game.result) },
        {
          name: "Owner",
          by: (game) => game.opponent_owner.toLowerCase(),
          cell: (game) => game.opponent_owner,
        },
        { name: "Opponent", by: (game) => game.opponent_model.toLowerCase(), cell: opponent },
        {
          name: "When",
          optional: true,
          descending: true,
          by: (game) => game.at_ms,
          cell: (game) => timeAgo(game.at_ms),
        },
        {
          name: "Match",
          cell: (game) => watchLink({ id: game.match, has_replay: game.has_replay }),
        },
        { name: "Compare", optional: true, cell: (game) => compare(team.team, game, env) },
      ],
      rowClass: (game) => game.result,
    },
    team.games,
  );
  const text = team.games.length < games ? `The newest ${count(team.games.length)} of ${count(games)}.` : "";
  return box("Games", text, table.root);
}

function opponent(game: TeamGame): HTMLElement {
  const href = modelLink(`${game.opponent_owner}/${game.opponent_model}`);
  return element("span", { class: "model" }, element("a", { href }, game.opponent_model));
}

function compare(team: string, game: TeamGame, env: string): Content {
  const other = `${game.opponent_owner}/${game.opponent_model}`;
  const href = compareHref(other, team, env);
  if (href === null) return "–";
  return element("a", { href, "aria-label": `Compare with ${other}` }, "Compare");
}
