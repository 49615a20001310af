// What the arena is doing now, and why a model is not on the board.
import { element } from "../../page/dom";
import { histogramOf } from "../charts/hours";
import { isExport, load, LoadError } from "../data";
import { count, plural } from "../format";
import { listen, paced } from "../live";
import { box, describe, facts, note, tag, timeAgo } from "../parts";
import { buildShell, fill, heading, placeholder } from "../shell";
import type { JobCounts, RunningJob, Status, WorkerLine } from "../../api";
import { DataTable, Listed, type TableOptions } from "../table";
import { unrankedTable } from "../unranked";

const shell = buildShell("status");
const REFRESH_MS = 10_000;

let page: StatusPage | null = null;

void fill(shell.content, async () => {
  const status = await load<Status>("status");
  page = new StatusPage();
  page.show(status);
  return page.build();
}).then((shown) => {
  if (!shown) return;
  listen(refresh, (on) => shell.connected(on), refresh);
  window.setInterval(() => !document.hidden && refresh(), REFRESH_MS);
});

/** What cannot be loaded now is left as it is; the next event asks again. */
const refresh = paced(async () => {
  try {
    page?.show(await load<Status>("status"));
  } catch (error) {
    if (!(error instanceof LoadError)) throw error;
  }
});

/** Built once; what changes is shown in place, so that a reader keeps the order, the scrolled place and the focus. */
class StatusPage {
  private readonly overview = element("div");
  private readonly left = note();
  private readonly unranked = new Listed(unrankedTable(true), placeholder("Every pushed model is ranked"));
  private readonly untended = element("div", { class: "verdict wait", role: "status" });
  private readonly kinds = new DataTable(KINDS);
  private readonly running = new Listed(RUNNING, note("Nothing is being played at this moment."));
  private readonly hours = element("div");
  private readonly workers = new Listed(WORKERS, noWorkers());
  private readonly log = element("div");

  build(): Node[] {
    const pairs = "Work is handed out in mirrored pairs: same seed, sides swapped.";
    return [
      heading("Status", "What the arena is doing now, and why a model is not ranked."),
      this.overview,
      box("Why is my model not ranked?", "", this.left, this.unranked.root),
      element(
        "div",
        { class: "columns" },
        box("Queue", pairs, this.untended, this.kinds.root, this.running.root),
        box("Matches per hour", "The last 24 hours.", this.hours),
      ),
      box("Workers", "Processes that check models and play matches.", this.workers.root),
      box("Match log", "", this.log),
    ];
  }

  show(status: Status): void {
    this.overview.replaceChildren(overview(status));
    this.left.textContent = whatIsListed(status);
    this.unranked.show(status.unranked);
    this.untended.textContent = status.untended ?? "";
    this.untended.hidden = status.untended === null;
    this.kinds.root.hidden = status.jobs.length === 0;
    this.kinds.show(status.jobs);
    this.running.show(status.running);
    this.hours.replaceChildren(histogramOf(status.hours));
    this.workers.show(status.workers);
    this.log.replaceChildren(logHead(status));
  }
}

function overview(status: Status): HTMLElement {
  const levels = new Set(status.workers.filter(({ alive }) => alive).map(({ isolation }) => isolation));
  const waiting = status.jobs.reduce((sum, job) => sum + job.ready, 0);
  const running = status.jobs.reduce((sum, job) => sum + job.leased, 0);
  const alive = status.workers_alive;
  return facts([
    { name: "Matches", value: count(status.matches), under: `${count(status.matches_last_hour)} in the last hour` },
    { name: "Waiting", value: count(waiting), under: plural(running, "job running", "jobs running") },
    { name: "Workers", value: count(alive), under: alive ? "playing now" : "nobody plays" },
    { name: "Isolation", value: [...levels].join(", ").replaceAll("+", ", ") || "–", under: "how strangers' models are kept in" },
    { name: "Ratings behind", value: count(status.ratings_behind), under: "matches not in a fit yet" },
    { name: "Schedule", value: status.mode },
  ]);
}

function whatIsListed({ unranked, unranked_of }: Status): string {
  const text = "Every model that the board does not show under its name, with the reason and what to do about it.";
  if (unranked.length === unranked_of) return text;
  return `${text} These are the newest ${count(unranked.length)} of ${count(unranked_of)}; the leaderboard finds all.`;
}

const KINDS: TableOptions<JobCounts> = {
  label: "Jobs by kind",
  key: (job) => job.kind,
  columns: [
    { name: "Kind", header: true, cell: (job) => job.kind },
    { name: "Ready", numeric: true, cell: (job) => count(job.ready) },
    { name: "Running", numeric: true, cell: (job) => count(job.leased) },
    { name: "Done", numeric: true, cell: (job) => count(job.done) },
    { name: "Failed", numeric: true, cell: (job) => count(job.failed) },
  ],
};

const RUNNING: TableOptions<RunningJob> = {
  label: "Jobs running now",
  limit: 20,
  key: (job) => String(job.id),
  columns: [
    { name: "Running now", header: true, cell: (job) => job.what },
    { name: "Worker", cell: (job) => job.worker },
    { name: "Attempt", numeric: true, optional: true, cell: (job) => String(job.attempts) },
  ],
};

const WORKERS: TableOptions<WorkerLine> = {
  label: "Workers",
  limit: 50,
  key: (worker) => worker.name,
  columns: [
    { name: "Worker", header: true, cell: (worker) => worker.name },
    { name: "State", cell: workerState },
    { name: "Isolation", optional: true, cell: (worker) => worker.isolation },
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
    {
      name: "Platform",
      optional: true,
      cell: (worker) => element("span", { class: "wraps" }, describe(worker.platform)),
    },
  ],
};

/** With what stands behind it in words: nobody points at a tag with a finger or by keyboard. */
function workerState({ suspended, alive, trusted }: WorkerLine): HTMLElement {
  if (suspended) return told(tag("suspended", "bad"), suspended);
  if (!alive) return tag("gone");
  const playing = tag("playing", "good");
  return trusted ? playing : told(playing, "only matches that can be played again");
}

function told(mark: HTMLElement, words: string): HTMLElement {
  return element("span", { class: "model" }, element("span", {}, mark), element("small", {}, words));
}

function noWorkers(): HTMLElement {
  if (isExport) return placeholder("No worker was connected");
  const hint = placeholder("No worker has connected", [
    "The arena starts its own unless told otherwise (--workers). Another machine can help:",
  ]);
  hint.append(element("pre", { tabindex: "0" }, `palus worker --arena ${location.origin} --token-file lab.token`));
  return hint;
}

function logHead(status: Status): HTMLElement {
  const head = element("code", {}, status.head_hash);
  return note(`Match ${count(status.head_seq)} ends the log; its hash covers every match before it: `, head);
}
