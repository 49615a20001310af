"""The JSON of every page, one model per shape: what the server promises and the front end and other programs rely on.

Conventions. Times are milliseconds since 1970 UTC (`*_ms`), durations seconds (`*_s`). Ratings are points around 1200,
400 points = 10:1 odds; `half_width` is half of the 95 % interval. Shares are in [0, 1]. A player is one rated
entity: the SHA-256 of a model file. `repo` is `owner/name`, and `/` + repo is the address of its page.

    GET /api/arena/...                              shape
    envs                                            Environments
    head                                            Head
    leaderboard/{env}                               Leaderboard
    unranked/{env}                                  UnrankedModels
    recent/{env}                                    RecentMatches
    models/{owner}/{name}                           ModelPage
    matches/{id}                                    MatchPage
    matches/{id}/replay                             bytes of a *.match file, or of an mp4
    compare/{ownerA}/{nameA}/{ownerB}/{nameB}       Comparison
    matrix/{env}                                    Matrix
    status                                          Status
    analytics/{env}                                 Analytics
    analytics/{env}/{owner}/{name}                  TeamResults
    downloads/{env}/matches.{csv,json,parquet}      the log, one row per match
    downloads/{env}/ratings.{csv,json,parquet}      the board
    downloads/{env}/history.csv                     model1,model2,timestamp,result
    downloads/{env}/elo.csv                         rank,author,model,elo,games_played
    events                                          server-sent events, data = Event

The static export writes the JSON of `/api/arena/X` as `data/X.json` and a replay as `data/matches/{id}.match`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Kind = Literal["house", "model", "baseline"]
Outcome = Literal["win", "draw", "loss", "void"]
SideName = Literal["blue", "purple"]
Verdict = Literal["win1", "win2", "draw", "forfeit1", "forfeit2", "void"]


class Shape(BaseModel):
    """Base of all shapes: immutable, nothing but the declared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Fault(Shape):
    """Body of every answer that is not a success; a browser that asks for a page is shown the sentence on one."""

    error: str = Field(description="one sentence: what was found, what was expected, what to do")
    code: str = Field(description="stable name of the fault, for programs")


class Tally(Shape):
    """Games of one player. share: points taken / games, 0 without games."""

    games: int
    wins: int
    draws: int
    losses: int
    share: float


class Player(Shape):
    """How a page names a rated entity. revision: 40 hex of the commit that brought it."""

    sha256: str
    repo: str
    owner: str
    name: str
    revision: str
    kind: Kind
    rating: float | None = Field(default=None, description="null until the first fit includes the player")
    half_width: float | None = None


# --- /api/arena/envs, leaderboard/{env}


class Environment(Shape):
    """One game that is ranked here."""

    env: str
    models: int
    matches: int
    updated_ms: int | None


class Environments(Shape):
    """The first is the one that pages show unless told otherwise."""

    environments: list[Environment]


class LeaderboardRow(Shape):
    """One repository, by its newest accepted revision. rank_best..rank_worst: ranks that the results leave open."""

    rank: int
    rank_best: int
    rank_worst: int
    repo: str
    owner: str
    name: str
    revision: str
    sha256: str
    kind: Kind
    rating: float
    half_width: float
    provisional: bool = Field(description="below 20 games or half-width above 100")
    games: int
    wins: int
    draws: int
    losses: int
    elo: float = Field(description="the reference's online formula, K 20, scale 500")
    openskill_mu: float
    openskill_sigma: float
    openskill: float = Field(description="mu - 3 sigma")
    last_match_ms: int | None
    revisions: int = Field(description="accepted revisions of this repository, older ones included")


class SideTerm(Shape):
    """Worth of the blue side in points; a fair field includes 0."""

    points: float
    half_width: float


class LooseGroup(Shape):
    """Models that fewer than ten mirrored pairs tie to all others; ratings cannot be compared across that gap."""

    repos: list[str]
    pairs: int


class Leaderboard(Shape):
    """Everything of one env's board. upto_seq: last match of the log that went into the ratings."""

    env: str
    updated_ms: int | None
    upto_seq: int
    log_seq: int = Field(description="newest match of the log; ahead of upto_seq while a fit is due")
    matches: int
    side: SideTerm | None
    loose: list[LooseGroup] = Field(description="groups that few matches tie to the rest; empty in a sound field")
    rows: list[LeaderboardRow]


class MatchLine(Shape):
    """A match seen from one player. score: own goals, the opponent's; of this game alone, not the pair."""

    id: str
    at_ms: int
    leg: int
    side: SideName
    opponent: Player
    outcome: Outcome
    forfeit: bool
    score: tuple[int, int]
    duration_s: float
    rated: bool
    has_replay: bool


class MatchSummary(Shape):
    """A match seen from outside, for lists of the newest ones."""

    id: str
    seq: int
    at_ms: int
    env: str
    blue: Player
    purple: Player
    result: Verdict
    score: tuple[int, int]
    duration_s: float
    rated: bool


class RecentMatches(Shape):
    """/api/arena/recent/{env}: newest first."""

    env: str
    matches: list[MatchSummary]


# --- /api/arena/models/{owner}/{name}


class Refusal(Shape):
    """Why a file was not accepted. `code` is stable, `sentence` says what was found, `remedy` what to do."""

    code: str
    sentence: str
    remedy: str


class Revision(Shape):
    """One pushed commit in one env. details: what validation measured, free-form."""

    env: str
    revision: str
    file: str
    sha256: str | None
    state: Literal["pending", "waiting", "accepted", "refused", "withdrawn"]
    refusal: Refusal | None = Field(description="why it was refused, or what it waits for")
    details: dict[str, JsonValue]
    pushed_ms: int
    checked_ms: int | None
    current: bool = Field(description="the revision that the board shows")
    rating: float | None
    half_width: float | None
    games: int


class RatingPoint(Shape):
    """Rating after one match of the log; the band is rating +- half_width."""

    at_ms: int
    seq: int
    rating: float
    half_width: float
    games: int


class RatingSeries(Shape):
    """Rating over time of one revision, oldest point first."""

    revision: str
    sha256: str
    points: list[RatingPoint]


class HeadToHead(Shape):
    """Games against one opponent. low..high: 95 % interval of the share, over mirrored pairs."""

    opponent: Player
    games: int
    wins: int
    draws: int
    losses: int
    share: float
    low: float
    high: float
    expected: float | None = Field(description="share that the ratings predict")


class StrengthBin(Shape):
    """Games against opponents rated low..high: what the ratings predicted and what was scored."""

    low: float
    high: float
    games: int
    expected: float
    actual: float


class Goals(Shape):
    """Goals and how long they took. Bin i of the histograms covers bin_s * i .. bin_s * (i + 1) seconds.

    Frags in games that are filmed, without times.
    """

    scored: int
    conceded: int
    mean_scored_s: float | None
    mean_conceded_s: float | None
    bin_s: float
    scored_bins: list[int]
    conceded_bins: list[int]


class PlayStats(Shape):
    """From the replays of `matches` games; the player's side is turned to blue, which attacks to the right."""

    matches: int
    possession: float = Field(description="share of the time, both teams' possession being 1")
    shots_per_match: float
    distance_m_per_match: float = Field(description="of the whole team")
    ball_heat: list[list[float]] = Field(description="rows from the far touchline to the near one; all cells sum to 1")


class NextOpponent(Shape):
    """What to play next: the pairing that would teach the ratings most. gain: nats of one mirrored pair."""

    opponent: Player
    games: int
    gain: float
    sentence: str


class SequentialTest(Shape):
    """Sequential test "is the second player better", on mirrored pairs; stops at either bound."""

    elo0: float
    elo1: float
    alpha: float
    beta: float
    pairs: int
    llr: float
    lower: float
    upper: float
    state: Literal["better", "not better", "undecided"]
    sentence: str


class RevisionComparison(Shape):
    """A revision against the one before it. difference: newer minus older, points."""

    newer: str
    older: str
    difference: float | None
    half_width: float | None
    test: SequentialTest


class Performance(Shape):
    """How a repository does in one env. Lists of matches concern the current revision."""

    env: str
    filmed: bool = Field(description="replays are videos: no statistics of them, no matches in the demo room")
    standing: LeaderboardRow | None
    why_unranked: str | None = Field(description="a sentence where standing is null")
    same_as: str | None = Field(description="repository whose player the newest revision is, if another one")
    history: list[RatingSeries]
    head_to_head: list[HeadToHead]
    best_wins: list[MatchLine] = Field(description="strongest opponents first")
    worst_losses: list[MatchLine] = Field(description="weakest opponents first")
    recent: list[MatchLine]
    blue: Tally
    purple: Tally
    goals: Goals
    by_strength: list[StrengthBin]
    play: PlayStats | None
    play_next: list[NextOpponent]
    revision_comparisons: list[RevisionComparison]


class ModelPage(Shape):
    """One repository. card_html: sanitised, may be put into a page as it is."""

    repo: str
    owner: str
    name: str
    kind: Kind
    on_hub: bool = Field(description="false for house players and folders: nothing to download")
    tags: list[str]
    library_name: str | None
    downloads: int
    created_ms: int | None
    modified_ms: int | None
    card_html: str
    revisions: list[Revision] = Field(description="newest first")
    performance: list[Performance] = Field(description="one per env, the most played first")


# --- /api/arena/matches/{id}


class MatchSide(Shape):
    """Who played one side, as the record says it. player: the entity as it stands now."""

    repo: str
    owner: str
    revision: str
    file: str
    sha256: str
    mode: str
    player: Player


class MatchEvent(Shape):
    """type: goal or kick; side: team that did it; agent: 0 to 3 as in the replay, null when unknown."""

    tick: int
    at_s: float
    type: str
    side: SideName
    agent: int | None


class StoredFile(Shape):
    """A stored file. url: where to get it, null when it is no longer kept."""

    sha256: str
    bytes: int
    url: str | None


class ChainPosition(Shape):
    """Where the match stands in the hash chain: hash = sha256(prev_hash + "\\n" + record)."""

    seq: int
    prev_hash: str
    hash: str
    intact: bool = Field(description="the hash was computed again for this answer, and the one before it fits")
    head_seq: int


class MatchPage(Shape):
    """One match. seed is text: it has 64 bits, which JavaScript's numbers do not."""

    id: str
    env: str
    env_version: str
    filmed: bool = Field(description="the replay is an mp4, and the match does not repeat")
    seed: str
    unit_id: str
    leg: int
    season: int
    blue: MatchSide
    purple: MatchSide
    result: Verdict
    cause: str
    score: tuple[int, int]
    duration_ticks: int
    duration_s: float
    events: list[MatchEvent]
    started: str
    finished_ms: int
    wall_ms: float
    rated: bool
    annulled: str | None = Field(description="why the match was struck out")
    worker: str
    runner: dict[str, JsonValue]
    replay: StoredFile | None
    actions: StoredFile | None
    chain: ChainPosition
    other_leg: str | None = Field(description="id of the game with sides swapped")
    verify_command: str = Field(description="what to type to play the action log again, or to check the video")


# --- compare/..., matrix/{env}


class Comparison(Shape):
    """Two repositories by their current revisions; the same one twice compares its last two revisions.

    difference: rating of b minus a, half_width of its own 95 % interval. expected: share of b that the ratings predict.
    games seen from b.
    """

    env: str
    a: Player
    b: Player
    difference: float | None
    half_width: float | None
    expected: float | None
    head_to_head: HeadToHead = Field(description="of b against a")
    test: SequentialTest
    verdict: str = Field(description="what the games between the two and the ratings say together")
    caution: str | None = Field(description="why the difference is not to be trusted; null where it is")
    matches: list[MatchLine] = Field(description="of b, newest first")


class SupportLine(Shape):
    """A player that the maximum-entropy equilibrium plays with probability mass, or could; low, high: 95 % interval."""

    sha256: str
    mass: float
    low: float
    high: float


class Cycle(Shape):
    """Each beats the next, the last the first; every edge is significant. shares[i]: of players[i] in that edge."""

    players: list[str] = Field(description="SHA-256 of each")
    shares: list[float]


class Matrix(Shape):
    """Win matrix of the strongest. share[i][j]: of i against j, null without games; games[i][j]: their count."""

    env: str
    updated_ms: int | None
    upto_seq: int
    of: int = Field(
        description="players rated; the matrix shows the strongest and whoever is in the support or a cycle"
    )
    players: list[Player]
    share: list[list[float | None]]
    games: list[list[int]]
    nash_support: list[SupportLine]
    nash_skill: list[float | None] = Field(description="per player: points that it is ahead of the equilibrium")
    unexplained_share: float | None = Field(description="variance of the matrix that one rating per player leaves open")
    unexplained_by_chance: float | None = Field(description="what sampling noise alone would leave open")
    cycles: list[Cycle]


# --- /api/arena/head


class Head(Shape):
    """Where the match log ends: who notes it can tell later whether anything before it was changed or cut off."""

    seq: int
    hash: str
    annulled: int = Field(description="matches that were struck out")
    annulled_hash: str = Field(description="of the list of those")


# --- /api/arena/status


class JobCounts(Shape):
    """Jobs of one kind by state."""

    kind: str
    ready: int
    leased: int
    done: int
    failed: int


class RunningJob(Shape):
    """A job that a worker holds. what: a phrase for people."""

    id: int
    kind: str
    what: str
    worker: str
    attempts: int
    lease_until_ms: int | None


class WorkerLine(Shape):
    """A process that plays. isolation: how strangers' models are kept in; alive: seen within the last minute;
    trusted: also gets what nobody could check later."""

    name: str
    isolation: str
    platform: dict[str, JsonValue]
    first_seen_ms: int
    last_seen_ms: int
    alive: bool
    trusted: bool
    matches: int
    suspended: str | None


class Unranked(Shape):
    """The newest revision of a repository that does not stand on the board under its name, and why."""

    repo: str
    env: str
    revision: str
    state: str
    code: str | None
    sentence: str
    remedy: str | None
    same_as: str | None = Field(description="repository whose player it is: equal models are rated once")
    since_ms: int


class UnrankedModels(Shape):
    """/api/arena/unranked/{env}: the newest first. of: how many there are, which may be more than are listed."""

    env: str
    of: int
    models: list[Unranked]


class HourCount(Shape):
    """Matches that ended in the hour that began at start_ms."""

    start_ms: int
    matches: int


class Status(Shape):
    """What the arena is doing now. head_*: end of the hash chain."""

    now_ms: int
    mode: str
    matches: int
    matches_last_hour: int
    hours: list[HourCount] = Field(description="the last 24, oldest first")
    ratings_behind: int = Field(description="matches of the log that no fit includes yet")
    jobs: list[JobCounts]
    running: list[RunningJob]
    untended: str | None = Field(description="that jobs wait for a trusted worker, and none is there; a sentence")
    workers: list[WorkerLine]
    unranked: list[Unranked] = Field(description="of all envs, the newest")
    unranked_of: int = Field(description="how many there are")
    head_seq: int
    head_hash: str


# --- /api/arena/analytics/{env}, analytics/{env}/{owner}/{name}


class DayMatches(Shape):
    """day: YYYY-MM-DD in UTC. cumulative: matches up to its end."""

    day: str
    matches: int
    cumulative: int


class TeamLine(Shape):
    """Every id ever seen, case-insensitive order. win_rate: percent of all games, two decimals."""

    team: str
    wins: int
    draws: int
    losses: int
    win_rate: float
    since_ms: int


class CauseCount(Shape):
    """Matches that ended for this cause."""

    cause: str
    matches: int


class Analytics(Shape):
    """Competition statistics of one env. season_end_ms: null when no end is set."""

    env: str
    season: int
    season_end_ms: int | None
    matches: int
    models: int
    days: list[DayMatches]
    teams: list[TeamLine]
    blue_wins: int
    draws: int
    purple_wins: int
    mean_duration_s: float | None
    duration_bin_s: float
    duration_bins: list[int]
    causes: list[CauseCount]


class TeamGame(Shape):
    """One row of a team's table of results."""

    match: str
    at_ms: int
    result: Literal["win", "draw", "loss"]
    opponent_owner: str
    opponent_model: str


class TeamDay(Shape):
    """Results of one UTC day, for stacked bars."""

    day: str
    losses: int
    draws: int
    wins: int


class TeamResults(Shape):
    """The results of one team over all its revisions. games: newest first, at most `games_limit`."""

    env: str
    team: str
    wins: int
    draws: int
    losses: int
    win_rate: float
    since_ms: int
    games: list[TeamGame]
    games_limit: int
    days: list[TeamDay]


# --- /api/arena/events


class Event(Shape):
    """One server-sent event; `seq` grows by one with every match of the log. Its SSE event name is `type`.

    match: a match was logged.   rating: a new fit was published.   entry: a revision was pushed, accepted or refused.
    """

    type: Literal["match", "rating", "entry"]
    seq: int
    env: str | None = None
    match: MatchSummary | None = None
    repo: str | None = None
    state: str | None = None
