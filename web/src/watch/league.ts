// The league of one run: who beats whom among its snapshots, whom it meets, where its snapshots come from.
import { element, svg } from "../page/dom";
import { figure, line, px, scale, text, ticks, type Range } from "../site/charts/plot";
import { brief, count, percent, plural } from "../site/format";
import { box, note } from "../site/parts";
import { placeholder } from "../site/shell";
import type { LeaguePolicy, LeagueView, WatchedRun } from "../api";

/** More snapshots than this are thinned: the first, the last and those between them at even distances. */
const MOST_IN_MATRIX = 16;
const MOST_IN_MIX = 12;
/** Matches at which a cell has half of its colour. */
const PALE_MATCHES = 10;
const LANE_PX = 46;

export type Payoffs = "training" | "evaluation";

export function leagueSections(run: WatchedRun, payoffs: Payoffs): HTMLElement[] {
  const { league } = run;
  if (!league) {
    const words = run.state === "waiting" ? "The run has not begun yet." : "Nobody plays a past self in this run.";
    return [box("League", "", placeholder("No league", [words]))];
  }
  return [matrix(league, payoffs), element("div", { class: "columns" }, mix(league), lineage(league))];
}

/** Learners and members, and as many snapshots as a matrix can show. */
function shown({ policies }: LeagueView): LeaguePolicy[] {
  const snapshots = policies.filter(({ kind }) => kind === "snapshot");
  const last = snapshots.length - 1;
  const wanted = new Set(
    Array.from({ length: MOST_IN_MATRIX }, (_, i) => snapshots[Math.round((i * last) / (MOST_IN_MATRIX - 1))]),
  );
  const kept = last < MOST_IN_MATRIX ? snapshots : snapshots.filter((one) => one.landmark || wanted.has(one));
  const by = (kind: LeaguePolicy["kind"]) => policies.filter((policy) => policy.kind === kind);
  return [...by("learner"), ...kept.reverse(), ...by("member")];
}

function matrix(league: LeagueView, payoffs: Payoffs): HTMLElement {
  const title = "Win matrix";
  const all = league.policies.filter(({ kind }) => kind === "snapshot").length;
  const cells = new Map(league[payoffs].map(([a, b, points, matches]) => [`${a} ${b}`, { points, matches }]));
  if (!cells.size) {
    const words = "Payoffs are written at checkpoints; matches of evaluation only where the run plays them.";
    return box(title, "", placeholder(`No match of ${payoffs} on record yet`, [words]));
  }
  const policies = shown(league);
  const corner = element("td", {}, element("span", { class: "visually-hidden" }, "Points of row against column"));
  const heads = policies.map((one) => element("th", { scope: "col" }, element("span", {}, named(one))));
  const rows = policies.map((one) => {
    const row = policies.map((other) => cell(one, other, cells.get(`${one.id} ${other.id}`)));
    return element("tr", {}, element("th", { scope: "row", title: described(one) }, named(one)), ...row);
  });
  const table = element("table", { "aria-label": title });
  table.append(element("thead", {}, element("tr", {}, corner, ...heads)), element("tbody", {}, ...rows));
  const region = element("div", { class: "scroll matrix", role: "region", "aria-label": title, tabindex: "0" }, table);
  const few = policies.filter(({ kind }) => kind === "snapshot").length;
  const thinned = few < all ? ` ${few} of ${all} snapshots are shown.` : "";
  return box(
    title,
    `Points of row against column, in matches of ${payoffs}.`,
    region,
    note(`Green: the row took more than half of the points. Pale: few matches. Small: matches.${thinned}`),
  );
}

function cell(one: LeaguePolicy, other: LeaguePolicy, score?: { points: number; matches: number }): HTMLElement {
  if (one.id === other.id) return element("td", {}, element("span", { class: "dim" }, "·"));
  if (!score?.matches) return element("td", {}, element("span", { class: "dim" }, "–"));
  const share = score.points / score.matches;
  const label = `${named(one)} against ${named(other)}: ${percent(share)} of ${plural(score.matches, "match", "matches")}`;
  const shownShare = element("span", {}, String(Math.round(100 * share)), element("small", {}, brief(score.matches)));
  const made = element("td", { title: label }, shownShare);
  const weight = score.matches / (score.matches + PALE_MATCHES);
  const strength = Math.round(Math.min(1, Math.abs(share - 0.5) * 2) * weight * 62);
  made.style.background = `color-mix(in srgb, var(--${share >= 0.5 ? "cell-win" : "cell-loss"}) ${strength}%, transparent)`;
  return made;
}

function named(policy: LeaguePolicy): string {
  return policy.kind === "snapshot" && policy.step !== null ? `${policy.label} at ${brief(policy.step)}` : policy.label;
}

function described({ behavior, step, landmark }: LeaguePolicy): string {
  return `${behavior}${step === null ? "" : `, ${count(step)} steps`}${landmark ? ", a landmark" : ""}`;
}

/** Whom the learners meet: as the league draws now, or as they have met so far. */
function mix(league: LeagueView): HTMLElement {
  const names = new Map(league.policies.map((policy) => [policy.id, policy.label]));
  const kinds = new Map(league.policies.map(({ id, kind }) => [id, kind]));
  const last = (id: number) => ({ learner: Infinity, snapshot: id, member: -1 })[kinds.get(id) ?? "snapshot"];
  // A learner's matches become those of its next snapshot, which comes after all whom it met.
  const met = league.training.filter(([policy, opponent]) => last(policy) >= last(opponent));
  const all = met.reduce((sum, [, , , matches]) => sum + matches, 0);
  const several = new Set(league.mix.map(({ behavior }) => behavior)).size > 1;
  const shares: [string, number][] = league.mix.length
    ? league.mix.map(({ behavior, opponent, share }) => [several ? `${behavior}: ${opponent}` : opponent, share])
    : met.map(([, opponent, , matches]) => [names.get(opponent) ?? "a snapshot no longer kept", matches / all]);
  const merged = new Map<string, number>();
  for (const [name, share] of shares) merged.set(name, (merged.get(name) ?? 0) + share);
  const sorted = [...merged].sort((a, b) => b[1] - a[1]);
  const rows = sorted.slice(0, MOST_IN_MIX).map(([name, share]) => {
    const bar = element("span", {});
    bar.style.setProperty("--part", String(Math.min(1, share)));
    const gauge = element("div", { class: "gauge" }, bar);
    return [element("dt", {}, name), element("dd", {}, gauge, element("span", { class: "number" }, percent(share, 1)))];
  });
  const ofLate = {
    summary: "Share of the matches of late, those of the last summary; latest is the policy in training itself.",
    checkpoints: "Share of the matches of late against others, those of the last checkpoint of each run.",
  }[league.mix_of];
  const words = league.mix.length
    ? ofLate
    : "Share of the matches so far against past selves. Whom it meets of late is not on record in this run.";
  const rest = sorted.length > MOST_IN_MIX ? [note(`${sorted.length - MOST_IN_MIX} more with smaller shares.`)] : [];
  const nobody = placeholder("Nobody met yet", ["Shares appear with the first checkpoint."]);
  return box("Opponents", words, rows.length ? element("dl", { class: "mix" }, ...rows.flat()) : nobody, ...rest);
}

/** A lane for every learner, on it its snapshots where they were taken. */
function lineage(league: LeagueView): HTMLElement {
  const learners = league.policies.filter(({ kind }) => kind === "learner");
  const snapshots = league.policies.filter(({ kind, step }) => kind === "snapshot" && step !== null);
  if (!snapshots.length) {
    return box("Lineage", "", placeholder("No snapshot yet", ["The first one is the untrained policy."]));
  }
  const last = Math.max(1, ...league.policies.map(({ step }) => step ?? 0));
  const range: Range = [0, last];
  const laneOf = new Map(learners.map(({ id }, lane) => [id, lane]));
  const taken = new Map(snapshots.map((one) => [one.id, one]));
  /** Where somebody has gone on from another learner's weights: from that one's snapshot to its own. */
  const handedOn = [...learners, ...snapshots].flatMap((to) => {
    const from = taken.get(to.origin ?? -1);
    return from && from.parent !== (to.kind === "learner" ? to.id : to.parent) ? [{ from, to }] : [];
  });
  const chart = figure({
    label: `Lineage: ${plural(snapshots.length, "snapshot")} of ${plural(learners.length, "learner")}`,
    height: LANE_PX * Math.max(1, learners.length) + 50,
    margin: { left: 12, right: 14 },
    draw: (area) => {
      const x = scale(range, [area.left, area.right]);
      const y = (lane: number) => area.top + LANE_PX * lane + 30;
      const axis = ticks(range, Math.max(1, Math.floor((area.right - area.left) / 110))).map((value) =>
        text(x(value), area.bottom + 20, brief(value), "middle"),
      );
      const lanes = learners.flatMap(({ label, step }, lane) => [
        text(area.left, y(lane) - 14, label, "start", "strong"),
        line(x(0), y(lane), x(step ?? last), y(lane), "axis"),
      ]);
      const at = ({ id, kind, parent, step }: LeaguePolicy) =>
        [x(step ?? 0), y(laneOf.get((kind === "learner" ? id : parent) ?? -1) ?? 0)] as const;
      const donations = handedOn.map(({ from, to }) => line(...at(from), ...at(to), "handed-on"));
      const dots = snapshots.map(({ parent, step, landmark, kept }) =>
        svg("circle", {
          cx: px(x(step ?? 0)),
          cy: px(y(laneOf.get(parent ?? -1) ?? 0)),
          r: landmark ? "6" : "4.5",
          class: `dot${landmark ? " landmark" : ""}${kept ? "" : " gone"}`,
        }),
      );
      return [...axis, ...lanes, ...donations, ...dots];
    },
    read: (at, area) => {
      const x = scale(range, [area.left, area.right]);
      const near = snapshots.reduce((a, b) => (Math.abs(x(b.step ?? 0) - at) < Math.abs(x(a.step ?? 0) - at) ? b : a));
      return { x: x(near.step ?? 0), text: `${near.label}: ${described(near)}${near.kept ? "" : ", file thinned out"}` };
    },
    caption: "A dot is a past self that was kept; larger: a landmark, which thinning leaves; hollow: its file is gone. A line between lanes: a learner goes on from another's weights.",
  });
  return box("Lineage", "Past selves of each learner, at the step when they were taken.", chart);
}
