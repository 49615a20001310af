// The JSON of the server, field for field as in src/palus/web/shapes.py, which says what each means.
// A test compares the two.

export type Kind = "house" | "model" | "baseline";
export type Outcome = "win" | "draw" | "loss" | "void";
export type SideName = "blue" | "purple";
export type Verdict = "win1" | "win2" | "draw" | "forfeit1" | "forfeit2" | "void";

export interface Fault {
  readonly error: string;
  readonly code: string;
}

export interface Tally {
  readonly games: number;
  readonly wins: number;
  readonly draws: number;
  readonly losses: number;
  readonly share: number;
}

export interface Player {
  readonly sha256: string;
  readonly repo: string;
  readonly owner: string;
  readonly name: string;
  readonly revision: string;
  readonly kind: Kind;
  readonly rating: number | null;
  readonly half_width: number | null;
}

export interface Environment {
  readonly env: string;
  readonly models: number;
  readonly matches: number;
  readonly updated_ms: number | null;
}

export interface Environments {
  readonly environments: readonly Environment[];
}

export interface LeaderboardRow {
  readonly rank: number;
  readonly rank_best: number;
  readonly rank_worst: number;
  readonly repo: string;
  readonly owner: string;
  readonly name: string;
  readonly revision: string;
  readonly sha256: string;
  readonly kind: Kind;
  readonly rating: number;
  readonly half_width: number;
  readonly provisional: boolean;
  readonly games: number;
  readonly wins: number;
  readonly draws: number;
  readonly losses: number;
  readonly elo: number;
  readonly openskill_mu: number;
  readonly openskill_sigma: number;
  readonly openskill: number;
  readonly last_match_ms: number | null;
  readonly revisions: number;
}

export interface SideTerm {
  readonly points: number;
  readonly half_width: number;
}

export interface LooseGroup {
  readonly repos: readonly string[];
  readonly pairs: number;
}

export interface Leaderboard {
  readonly env: string;
  readonly updated_ms: number | null;
  readonly upto_seq: number;
  readonly log_seq: number;
  readonly matches: number;
  readonly side: SideTerm | null;
  readonly loose: readonly LooseGroup[];
  readonly rows: readonly LeaderboardRow[];
}

export interface MatchLine {
  readonly id: string;
  readonly at_ms: number;
  readonly leg: number;
  readonly side: SideName;
  readonly opponent: Player;
  readonly outcome: Outcome;
  readonly forfeit: boolean;
  readonly score: [number, number];
  readonly duration_s: number;
  readonly rated: boolean;
  readonly has_replay: boolean;
}

export interface MatchSummary {
  readonly id: string;
  readonly seq: number;
  readonly at_ms: number;
  readonly env: string;
  readonly blue: Player;
  readonly purple: Player;
  readonly result: Verdict;
  readonly score: [number, number];
  readonly duration_s: number;
  readonly rated: boolean;
}

export interface RecentMatches {
  readonly env: string;
  readonly matches: readonly MatchSummary[];
}

export interface Refusal {
  readonly code: string;
  readonly sentence: string;
  readonly remedy: string;
}

export interface Revision {
  readonly env: string;
  readonly revision: string;
  readonly file: string;
  readonly sha256: string | null;
  readonly state: "pending" | "waiting" | "accepted" | "refused" | "withdrawn";
  readonly refusal: Refusal | null;
  readonly details: Record<string, unknown>;
  readonly pushed_ms: number;
  readonly checked_ms: number | null;
  readonly current: boolean;
  readonly rating: number | null;
  readonly half_width: number | null;
  readonly games: number;
}

export interface RatingPoint {
  readonly at_ms: number;
  readonly seq: number;
  readonly rating: number;
  readonly half_width: number;
  readonly games: number;
}

export interface RatingSeries {
  readonly revision: string;
  readonly sha256: string;
  readonly points: readonly RatingPoint[];
}

export interface HeadToHead {
  readonly opponent: Player;
  readonly games: number;
  readonly wins: number;
  readonly draws: number;
  readonly losses: number;
  readonly share: number;
  readonly low: number;
  readonly high: number;
  readonly expected: number | null;
}

export interface StrengthBin {
  readonly low: number;
  readonly high: number;
  readonly games: number;
  readonly expected: number;
  readonly actual: number;
}

export interface Goals {
  readonly scored: number;
  readonly conceded: number;
  readonly mean_scored_s: number | null;
  readonly mean_conceded_s: number | null;
  readonly bin_s: number;
  readonly scored_bins: readonly number[];
  readonly conceded_bins: readonly number[];
}

export interface PlayStats {
  readonly matches: number;
  readonly possession: number;
  readonly shots_per_match: number;
  readonly distance_m_per_match: number;
  readonly ball_heat: readonly (readonly number[])[];
}

export interface NextOpponent {
  readonly opponent: Player;
  readonly games: number;
  readonly gain: number;
  readonly sentence: string;
}

export interface SequentialTest {
  readonly elo0: number;
  readonly elo1: number;
  readonly alpha: number;
  readonly beta: number;
  readonly pairs: number;
  readonly llr: number;
  readonly lower: number;
  readonly upper: number;
  readonly state: "better" | "not better" | "undecided";
  readonly sentence: string;
}

export interface RevisionComparison {
  readonly newer: string;
  readonly older: string;
  readonly difference: number | null;
  readonly half_width: number | null;
  readonly test: SequentialTest;
}

export interface Performance {
  readonly env: string;
  readonly filmed: boolean;
  readonly standing: LeaderboardRow | null;
  readonly why_unranked: string | null;
  readonly same_as: string | null;
  readonly history: readonly RatingSeries[];
  readonly head_to_head: readonly HeadToHead[];
  readonly best_wins: readonly MatchLine[];
  readonly worst_losses: readonly MatchLine[];
  readonly recent: readonly MatchLine[];
  readonly blue: Tally;
  readonly purple: Tally;
  readonly goals: Goals;
  readonly by_strength: readonly StrengthBin[];
  readonly play: PlayStats | null;
  readonly play_next: readonly NextOpponent[];
  readonly revision_comparisons: readonly RevisionComparison[];
}

export interface ModelPage {
  readonly repo: string;
  readonly owner: string;
  readonly name: string;
  readonly kind: Kind;
  readonly on_hub: boolean;
  readonly tags: readonly string[];
  readonly library_name: string | null;
  readonly downloads: number;
  readonly created_ms: number | null;
  readonly modified_ms: number | null;
  readonly card_html: string;
  readonly revisions: readonly Revision[];
  readonly performance: readonly Performance[];
}

export interface MatchSide {
  readonly repo: string;
  readonly owner: string;
  readonly revision: string;
  readonly file: string;
  readonly sha256: string;
  readonly mode: string;
  readonly player: Player;
}

export interface MatchEvent {
  readonly tick: number;
  readonly at_s: number;
  readonly type: string;
  readonly side: SideName;
  readonly agent: number | null;
}

export interface StoredFile {
  readonly sha256: string;
  readonly bytes: number;
  readonly url: string | null;
}

export interface ChainPosition {
  readonly seq: number;
  readonly prev_hash: string;
  readonly hash: string;
  readonly intact: boolean;
  readonly head_seq: number;
}

export interface MatchPage {
  readonly id: string;
  readonly env: string;
  readonly env_version: string;
  readonly filmed: boolean;
  readonly seed: string;
  readonly unit_id: string;
  readonly leg: number;
  readonly season: number;
  readonly blue: MatchSide;
  readonly purple: MatchSide;
  readonly result: Verdict;
  readonly cause: string;
  readonly score: [number, number];
  readonly duration_ticks: number;
  readonly duration_s: number;
  readonly events: readonly MatchEvent[];
  readonly started: string;
  readonly finished_ms: number;
  readonly wall_ms: number;
  readonly rated: boolean;
  readonly annulled: string | null;
  readonly worker: string;
  readonly runner: Record<string, unknown>;
  readonly replay: StoredFile | null;
  readonly actions: StoredFile | null;
  readonly chain: ChainPosition;
  readonly other_leg: string | null;
  readonly verify_command: string;
}

export interface Comparison {
  readonly env: string;
  readonly a: Player;
  readonly b: Player;
  readonly difference: number | null;
  readonly half_width: number | null;
  readonly expected: number | null;
  readonly head_to_head: HeadToHead;
  readonly test: SequentialTest;
  readonly verdict: string;
  readonly caution: string | null;
  readonly matches: readonly MatchLine[];
}

export interface SupportLine {
  readonly sha256: string;
  readonly mass: number;
  readonly low: number;
  readonly high: number;
}

export interface Cycle {
  readonly players: readonly string[];
  readonly shares: readonly number[];
}

export interface Matrix {
  readonly env: string;
  readonly updated_ms: number | null;
  readonly upto_seq: number;
  readonly of: number;
  readonly players: readonly Player[];
  readonly share: readonly (readonly (number | null)[])[];
  readonly games: readonly (readonly number[])[];
  readonly nash_support: readonly SupportLine[];
  readonly nash_skill: readonly (number | null)[];
  readonly unexplained_share: number | null;
  readonly unexplained_by_chance: number | null;
  readonly cycles: readonly Cycle[];
}

export interface JobCounts {
  readonly kind: string;
  readonly ready: number;
  readonly leased: number;
  readonly done: number;
  readonly failed: number;
}

export interface RunningJob {
  readonly id: number;
  readonly kind: string;
  readonly what: string;
  readonly worker: string;
  readonly attempts: number;
  readonly lease_until_ms: number | null;
}

export interface WorkerLine {
  readonly name: string;
  readonly isolation: string;
  readonly platform: Record<string, unknown>;
  readonly first_seen_ms: number;
  readonly last_seen_ms: number;
  readonly alive: boolean;
  readonly trusted: boolean;
  readonly matches: number;
  readonly suspended: string | null;
}

export interface Unranked {
  readonly repo: string;
  readonly env: string;
  readonly revision: string;
  readonly state: string;
  readonly code: string | null;
  readonly sentence: string;
  readonly remedy: string | null;
  readonly same_as: string | null;
  readonly since_ms: number;
}

export interface UnrankedModels {
  readonly env: string;
  readonly of: number;
  readonly models: readonly Unranked[];
}

export interface HourCount {
  readonly start_ms: number;
  readonly matches: number;
}

export interface Head {
  readonly seq: number;
  readonly hash: string;
  readonly annulled: number;
  readonly annulled_hash: string;
}

export interface Status {
  readonly now_ms: number;
  readonly mode: string;
  readonly matches: number;
  readonly matches_last_hour: number;
  readonly hours: readonly HourCount[];
  readonly ratings_behind: number;
  readonly jobs: readonly JobCounts[];
  readonly running: readonly RunningJob[];
  readonly untended: string | null;
  readonly workers: readonly WorkerLine[];
  readonly unranked: readonly Unranked[];
  readonly unranked_of: number;
  readonly head_seq: number;
  readonly head_hash: string;
}

export interface DayMatches {
  readonly day: string;
  readonly matches: number;
  readonly cumulative: number;
}

export interface TeamLine {
  readonly team: string;
  readonly wins: number;
  readonly draws: number;
  readonly losses: number;
  readonly win_rate: number;
  readonly since_ms: number;
}

export interface CauseCount {
  readonly cause: string;
  readonly matches: number;
}

export interface Analytics {
  readonly env: string;
  readonly season: number;
  readonly season_end_ms: number | null;
  readonly matches: number;
  readonly models: number;
  readonly days: readonly DayMatches[];
  readonly teams: readonly TeamLine[];
  readonly blue_wins: number;
  readonly draws: number;
  readonly purple_wins: number;
  readonly mean_duration_s: number | null;
  readonly duration_bin_s: number;
  readonly duration_bins: readonly number[];
  readonly causes: readonly CauseCount[];
}

export interface TeamGame {
  readonly match: string;
  readonly at_ms: number;
  readonly result: "win" | "draw" | "loss";
  readonly opponent_owner: string;
  readonly opponent_model: string;
}

export interface TeamDay {
  readonly day: string;
  readonly losses: number;
  readonly draws: number;
  readonly wins: number;
}

export interface TeamResults {
  readonly env: string;
  readonly team: string;
  readonly wins: number;
  readonly draws: number;
  readonly losses: number;
  readonly win_rate: number;
  readonly since_ms: number;
  readonly games: readonly TeamGame[];
  readonly games_limit: number;
  readonly days: readonly TeamDay[];
}

export interface Event {
  readonly type: "match" | "rating" | "entry";
  readonly seq: number;
  readonly env: string | null;
  readonly match: MatchSummary | null;
  readonly repo: string | null;
  readonly state: string | null;
}
