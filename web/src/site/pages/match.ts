// One match: the viewer, and everything that the record says about it.
import { copy, element, setText } from "../../page/dom";
import { queryLink } from "../../page/link";
import { mountReplay, showMessage } from "../../page/mount";
import { isExport, load, loadBytes, LoadError, path, replayUrl } from "../data";
import { bytes, count, moment, plural, rated, seconds, short } from "../format";
import { compareHref, matchLink, modelLink, pageLink, parameter } from "../links";
import { box, definitions, describe, note, sideMark, sideWords, tag, type Content } from "../parts";
import { verdictText } from "../recent";
import { buildShell, fill, heading, placeholder } from "../shell";
import { loadSolid } from "../solid";
import type { MatchPage, StoredFile } from "../../api";

const shell = buildShell(null);
const id = parameter("match") ?? parameter("id");
void fill(shell.content, async () => {
  if (id === null) return noMatch();
  // The replay is asked for at once, before the record has come.
  const replay = loadBytes(replayUrl(id)).catch((error: unknown) => error);
  const match = await load<MatchPage>(path("matches", id));
  return [title(match), await viewer(match, replay), ...details(match)];
});

function noMatch(): Node[] {
  const text = "A link to a match ends in ?match= and its id. The newest matches are below the leaderboard: ";
  const link = element("a", { href: pageLink("index") }, "Leaderboard");
  return [heading("Match"), element("section", { class: "box" }, placeholder("Which match?", [text, link]))];
}

function title(match: MatchPage): HTMLElement {
  const { blue, purple, score } = match;
  const marks = [match.rated ? tag("rated", "good") : tag("not rated", "wait", "This match does not change ratings")];
  if (match.annulled) marks.push(tag("struck out", "bad", match.annulled));
  const other = match.other_leg
    ? [element("a", { class: "button", href: matchLink(match.other_leg) }, "The other leg, sides swapped")]
    : [];
  const head = heading(`${blue.repo} ${score[0]} : ${score[1]} ${purple.repo}`, "", ...other);
  const under = element(
    "p",
    {},
    `${verdictText(match.result)} by ${causeText(match.cause)} · ${moment(match.finished_ms)} · `,
  );
  under.append(...marks.flatMap((mark) => [mark, " "]));
  head.firstElementChild?.append(under);
  return head;
}

function causeText(cause: string): string {
  return cause.replaceAll("_", " ");
}

/** The viewer in its panel, once the replay is there; else why there is none. */
async function viewer(match: MatchPage, loaded: Promise<unknown>): Promise<HTMLElement> {
  const root = element("div", { class: "palus" });
  const panel = element("section", { class: "stage-panel", "aria-label": "The match" }, root);
  if (match.replay === null) {
    showMessage(root, `No replay: this match ended by ${causeText(match.cause)}.`, "status");
    return panel;
  }
  const file = await loaded;
  if (file instanceof LoadError) showMessage(root, `The replay could not be loaded. ${file.message}`, "alert");
  else if (file instanceof Uint8Array && match.filmed) root.replaceWith(film(file as Uint8Array<ArrayBuffer>));
  else if (file instanceof Uint8Array) void start(root, file as Uint8Array<ArrayBuffer>);
  else throw file;
  return panel;
}

/** A whole match in some hundred kilobytes: kept in memory, so that seeking needs no server that can send parts. */
function film(file: Uint8Array<ArrayBuffer>): HTMLElement {
  const source = URL.createObjectURL(new Blob([file], { type: "video/mp4" }));
  const autoplay = parameter("autoplay") !== null;
  const video = element("video", { src: source, controls: true, loop: true, playsinline: true, autoplay });
  video.muted = true; // there is no sound, and browsers start only what is silent
  const words = "Left is what blue sees, right what purple sees.";
  return element("figure", { class: "film" }, video, element("figcaption", {}, words));
}

async function start(root: HTMLElement, file: Uint8Array<ArrayBuffer>): Promise<void> {
  const shown = await mountReplay(root, file, { link: queryLink(), loadSolid, embedded: true });
  if (shown && parameter("autoplay") !== null) shown.togglePlay();
}

function details(match: MatchPage): HTMLElement[] {
  const columns = element("div", { class: "columns thirds" }, players(match), trust(match), record(match));
  return match.annulled ? [struckOut(match.annulled), columns] : [columns];
}

function struckOut(reason: string): HTMLElement {
  const lines = [
    element("strong", {}, "Struck out"),
    element("p", {}, `${reason} The log keeps it; no rating counts it.`),
  ];
  return element("div", { class: "verdict bad" }, ...lines);
}

function players(match: MatchPage): HTMLElement {
  const href = compareHref(match.blue.repo, match.purple.repo, match.env);
  const link = href === null ? [] : [element("a", { class: "button", href }, "Compare the two")];
  return box(
    "Players",
    "",
    side("blue", match),
    side("purple", match),
    element("div", { class: "bar" }, ...link),
  );
}

function side(name: "blue" | "purple", match: MatchPage): HTMLElement {
  const played = match[name];
  const { player } = played;
  const rows: (readonly [string, Content])[] = [
    [
      sideWords(name, match.sides),
      element(
        "span",
        { class: "side-name" },
        sideMark(name),
        element("a", { href: modelLink(played.repo, match.env) }, played.repo),
      ),
    ],
    ["Rating now", rated(player.rating, player.half_width)],
    ["Revision", element("code", { title: played.revision }, short(played.revision))],
    ["Model file", element("code", { title: played.sha256 }, short(played.sha256))],
    ["Actions drawn", played.mode],
  ];
  return definitions(rows);
}

/** What lets a reader believe the record: its place in the chain, and the command that plays it again. */
function trust(match: MatchPage): HTMLElement {
  const { chain } = match;
  const badge = chain.intact
    ? tag("record intact", "good", "The hash was computed again for this page")
    : tag("record changed", "bad", "The hash does not fit the record");
  const rows: (readonly [string, Content])[] = [
    ["Place in the log", `${count(chain.seq)} of ${count(chain.head_seq)}`],
    ["Hash", element("code", {}, chain.hash)],
    ["Hash before it", element("code", {}, chain.prev_hash)],
  ];
  const command = element("pre", { class: "command", tabindex: "0" }, match.verify_command);
  const explain = note(
    match.filmed
      ? `${match.env} does not repeat, so nobody can play this match again. Checks its record and that the video is the one recorded:`
      : "Plays the action log again from the seed and compares the final state:",
  );
  return box(
    "Can this be believed?",
    "",
    element("p", { class: "note" }, badge),
    definitions(rows),
    explain,
    command,
    copyButton(match.verify_command, command),
  );
}

/** shown: where the command stands; it is selected where a page may not copy. */
function copyButton(command: string, shown: HTMLElement): HTMLElement {
  const button = element("button", { class: "button", type: "button" }, "Copy the command");
  button.addEventListener("click", () => void copied());
  const copied = async () => {
    const done = await copy(command);
    setText(button, done ? "Copied" : "Selected: copy it with the keyboard");
    if (!done) getSelection()?.selectAllChildren(shown);
  };
  return element("div", { class: "bar" }, button);
}

function record(match: MatchPage): HTMLElement {
  const deciding = match.events.filter((event) => event.type === match.cause);
  const times = deciding.map((event) => ` (${event.side} at ${seconds(event.at_s)})`).join("");
  const rows: (readonly [string, Content])[] = [
    ["Match", element("code", {}, match.id)],
    ["Environment", `${match.env} ${match.env_version}`],
    ["Seed", element("code", {}, match.seed)],
    ["Leg", `${match.leg} of 2, unit ${short(match.unit_id)}`],
    ["Season", String(match.season)],
    ["Length", `${seconds(match.duration_s)}, ${plural(match.duration_ticks, "tick")}`],
    [match.score_word, `${match.score.join(" : ")}${times}`],
    ["Played by", `${match.worker} in ${seconds(match.wall_ms / 1000)}`],
    ["Runner", describe(match.runner)],
    ["Replay", fileLink(match.replay, `${match.id}.${match.filmed ? "mp4" : "match"}`, replayUrl(match.id))],
    ["Action log", fileLink(match.actions, `${match.id}.actions`, null)],
  ];
  return box("Record", "", definitions(rows));
}

/** exported: where a static export keeps the file, null when it does not. */
function fileLink(file: StoredFile | null, name: string, exported: string | null): Content {
  if (file === null) return "none";
  const size = bytes(file.bytes);
  if (file.url === null) return `${size}, no longer kept`;
  const url = isExport ? exported : file.url;
  if (url === null) return `${size}, on the arena's server`;
  return element("a", { href: url, download: name }, `Download (${size})`);
}
