"""`palus.league`: what self-play has beside ML-Agents' `self_play`, which stays as it is.

The defaults are a league of ghosts: a sliding window of snapshots that change every `swap_steps`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from palus.config.section import Count, CountOrZero, Float, Fraction, Section

Role = Literal["main", "main_exploiter", "league_exploiter", "member"]
"""Of a learner and of its snapshots; a member is somebody whom nobody here trains."""


class Roles(Section):
    """Learners of each behavior with self_play, by what they are for (Vinyals et al. 2019); docs/self-play.md."""

    main: Count = Field(default=1, description="Those that shall win against everybody; the best is exported.")
    main_exploiter: CountOrZero = Field(default=0, description="Those that look for weaknesses of main learners.")
    league_exploiter: CountOrZero = Field(default=0, description="Those that look for weaknesses of the whole league.")

    @property
    def learners(self) -> tuple[Role, ...]:
        """Of each learner of a behavior."""
        counts: dict[Role, int] = {
            "main": self.main,
            "main_exploiter": self.main_exploiter,
            "league_exploiter": self.league_exploiter,
        }
        return tuple(role for role, count in counts.items() for _ in range(count))


class LeagueSettings(Section):
    """Who meets whom in self-play."""

    opponents: Literal["window", "history", "pfsp_hard", "pfsp_even", "psro_nash", "psro_entropy", "members"] = Field(
        default="window",
        description="How opponents are chosen: ML-Agents' ghosts, evenly over the history, by win rate, by a "
        "meta-solver, or members alone (docs/self-play.md).",
    )
    delta: Fraction = Field(
        default=0.0, description="Where `history` begins: 0 at the first snapshot, 0.5 in the middle, 1 at the newest."
    )
    strong_only: Fraction = Field(
        default=0.0,
        description="Past selves that take less than this share of the points are left out, unless all are.",
    )
    change_every: Count | None = Field(
        default=None,
        description="Interval between changes of a match's opponents; null means swap_steps, or each episode.",
    )
    change_unit: Literal["step", "episode"] = Field(
        default="step", description="What change_every counts: steps of the opponents, or matches."
    )
    landmarks: CountOrZero = Field(
        default_factory=lambda values: 0 if values["opponents"] == "window" else 32,
        description="Snapshots kept beside the window, spread over the whole run; default: 0 with `window`, else 32.",
    )
    members: tuple[str, ...] = Field(
        default=(),
        description="Others who are met like snapshots: `random`, scripted players of the game, .onnx and .npz files "
        "and folders of bundles.",
    )
    runs: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Runs of `palus league`, by name, each with its changes by dotted path: "
        "`{careful: {}, bold: {behaviors.Striker.hyperparameters.learning_rate: 1e-3}}`.",
    )
    roles: Roles = Field(default_factory=Roles, description="Learners of each behavior, by what they are for.")
    learn: Literal["one_team", "all_teams"] = Field(
        default="one_team",
        description="One team learns at a time (team_change); or each match has its own, and whom it meets learns "
        "too, where that is a policy in training.",
    )
    counting: Literal["matches", "reference"] = Field(
        default="matches",
        description="Every match slot draws its own opponent; or one for all matches at ML-Agents' literal steps, "
        "where the latest policy is that of the last swap (docs/differences.md).",
    )
    evaluation_share: Float = Field(
        default_factory=lambda values: 0.25 if values["opponents"].startswith("psro") else 0.0,
        ge=0,
        le=0.5,
        description="Share of the matches that past selves play among themselves, which nobody learns from; default: "
        "0.25 with `psro_nash` and `psro_entropy`, which know past selves from these, else 0.",
    )
