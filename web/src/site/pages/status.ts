// What the arena is doing now, and why a model is not on the board.
import { element } from "../../page/dom";
import { histogramOf } from "../charts/hours";
import { load } from "../data";
import { count, plural, short } from "../format";
import { listen, paced } from "../live";
import { box, describe, facts, modelCell, note, stateTag, tag, timeAgo } from "../parts";
import { buildShell, fill, heading, placeholder } from "../shell";
import type { JobCounts, RunningJob, Status, Unranked, WorkerLine } from "../shapes";
import { DataTable } from "../table";

const shell = buildShell("status");
const REFRESH_MS = 10_000;

const show = () => fill(shell.content, async () => build(await load<Status>("status")));

void show().then((shown) => {
  if (!shown) return;
  const refresh = paced(async () => {
    // A reader who is inside a table keeps the place; what changed shows once they leave it.
    if (!shell.content.contains(document.activeElement) || document.activeElement === shell.content) await show();
  });
  listen(refresh, (on) => shell.connected(on));
  window.setInterval(() => !document.hidden && refresh(), REFRESH_MS);
});

function build(status: Status): Node[] {
  return [
    heading("Status", "What the arena is doing now, and why a model is not ranked."),
    overview(status),
    unranked(status.unranked),
    element("div", { class: "columns" }, queue(status), activity(status)),
    workers(status.workers),
    log(status),
  ];
}

function overview(status: Status): HTMLElement {
  const alive = status.workers.filter((worker) => worker.alive);
  const levels = [...new Set(alive.map((worker) => worker.isolation))].join(", ").replaceAll("+", ", ");
  const waiting = status.jobs.reduce((sum, job) => sum + job.ready, 0);
  return facts([
    { name: "Matches", value: count(status.matches), under: `${count(status.matches_last_hour)} in the last hour` },
    { name: "Waiting", value: count(waiting), under: plural(status.running.length, "job running", "jobs running") },
    { name: "Workers", value: count(alive.length), under: alive.length ? "playing now" : "nobody plays" },
    { name: "Isolation", value: levels || "–", under: "how strangers' models are kept in" },
    { name: "Ratings behind", value: count(status.ratings_behind), under: "matches not in a fit yet" },
    { name: "Schedule", value: status.mode },
  ]);
}

function unranked(lines: readonly Unranked[]): HTMLElement {
  const text = "Every pushed revision that the board does not show, with the reason and what to do about it.";
  if (!lines.length) return box("Why is my model not ranked?", text, placeholder("Every pushed model is ranked"));
  const table = new DataTable(
    {
      label: "Models that are not ranked",
      limit: 50,
      columns: [
        {
          name: "Model",
          header: true,
          by: (line: Unranked) => line.repo.toLowerCase(),
          cell: (line) => modelCell(line.repo),
        },
        { name: "State", by: (line) => line.state, cell: (line) => stateTag(line.state) },
        { name: "Why, and what to do", cell: reason },
        { name: "Environment", optional: true, cell: (line) => line.env },
        {
          name: "Since",
          optional: true,
          descending: true,
          by: (line) => line.since_ms,
          cell: (line) => timeAgo(line.since_ms),
        },
      ],
    },
    lines,
  );
  return box("Why is my model not ranked?", text, table.root);
}

function reason(line: Unranked): HTMLElement {
  const parts: Node[] = [element("span", {}, line.sentence)];
  if (line.remedy) parts.push(element("small", {}, line.remedy));
  if (line.code) parts.push(element("small", {}, element("code", {}, line.code), ` revision ${short(line.revision)}`));
  return element("span", { class: "model" }, ...parts);
}

function queue(status: Status): HTMLElement {
  const kinds = new DataTable(
    {
      label: "Jobs by kind",
      columns: [
        { name: "Kind", header: true, cell: (job: JobCounts) => job.kind },
        { name: "Ready", numeric: true, cell: (job) => count(job.ready) },
        { name: "Running", numeric: true, cell: (job) => count(job.leased) },
        { name: "Done", numeric: true, cell: (job) => count(job.done) },
        { name: "Failed", numeric: true, cell: (job) => count(job.failed) },
      ],
    },
    status.jobs,
  );
  const running = new DataTable(
    {
      label: "Jobs running now",
      limit: 20,
      columns: [
        { name: "Running now", header: true, cell: (job: RunningJob) => job.what },
        { name: "Worker", cell: (job) => job.worker },
        { name: "Attempt", numeric: true, optional: true, cell: (job) => String(job.attempts) },
      ],
    },
    status.running,
  );
  const now = status.running.length ? running.root : note("Nothing is being played at this moment.");
  return box(
    "Queue",
    "Work is handed out in mirrored pairs: same seed, sides swapped.",
    ...(status.jobs.length ? [kinds.root] : []),
    now,
  );
}

function activity(status: Status): HTMLElement {
  return box("Matches per hour", "The last 24 hours.", histogramOf(status.hours));
}

function workers(lines: readonly WorkerLine[]): HTMLElement {
  if (!lines.length) {
    const hint = placeholder("No worker has connected", [
      "The arena starts its own unless told otherwise (--workers). Another machine can help:",
    ]);
    hint.append(element("pre", { tabindex: "0" }, `palus worker --arena ${location.origin} --token-file lab.token`));
    return box("Workers", "", hint);
  }
  const table = new DataTable(
    {
      label: "Workers",
      limit: 50,
      columns: [
        { name: "Worker", header: true, cell: (worker: WorkerLine) => worker.name },
        { name: "State", cell: workerState },
        { name: "Isolation", cell: (worker) => worker.isolation },
        {
          name: "Matches",
          numeric: true,
          descending: true,
          by: (worker) => worker.matches,
          cell: (worker) => count(worker.matches),
        },
        {
          name: "Seen",
          descending: true,
          by: (worker) => worker.last_seen_ms,
          cell: (worker) => timeAgo(worker.last_seen_ms),
        },
        { name: "Platform", optional: true, cell: (worker) => describe(worker.platform) },
      ],
    },
    lines,
  );
  return box("Workers", "Processes that check models and play matches.", table.root);
}

function workerState(worker: WorkerLine): HTMLElement {
  if (worker.suspended) return tag("suspended", "bad", worker.suspended);
  return worker.alive ? tag("playing", "good") : tag("gone");
}

function log(status: Status): HTMLElement {
  const head = element("code", {}, status.head_hash);
  return box(
    "Match log",
    "",
    note(`Match ${count(status.head_seq)} ends the log; its hash covers every match before it: `, head),
  );
}
