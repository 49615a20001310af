"""README.md of a published agent: what it plays, how well, a video, and how to run it.

The score stands in the front matter too, as "mean +/- std" of `mean_reward`, where course leaderboards read it.
Source: the model-index metadata of huggingface.co's model cards.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from palus.errors import HubError
from palus.export.bundle import CARD_MARK
from palus.hub.card import Card
from palus.hub.model_card import CardFacts, Labels, front_matter

EVALUATION, VIDEO = "evaluation.json", "replay.mp4"
"""What `palus enjoy` leaves in a run's folder."""
SCHEMA = 1


@dataclass(frozen=True)
class AgentScore:
    """What evaluation.json tells. mean, std: of the true objective over `episodes`; std of the population.

    mean_reward: mean sum of rewards, shaping included. steps: engine frames that the agent was trained for.
    deterministic: it took its likeliest action. best: it is the best policy of its run, not the newest.
    """

    env_id: str
    episodes: int
    mean: float
    std: float
    mean_reward: float
    steps: int
    deterministic: bool = False
    best: bool = False
    schema: int = SCHEMA

    @property
    def text(self) -> str:
        """As model cards state it: 12.34 +/- 1.20."""
        return f"{self.mean:.2f} +/- {self.std:.2f}"


def agent_labels(env_id: str) -> Labels:
    """Library and tags of an agent; leaderboards search for the environment's name."""
    return Labels("palus", (env_id, "deep-reinforcement-learning", "reinforcement-learning", "palus"))


def read_score(folder: Path) -> AgentScore | None:
    """The score in a run's folder; None when nobody measured it. Raises HubError when the file is damaged."""
    path = folder / EVALUATION
    if not path.is_file():
        return None
    try:
        score = AgentScore(**json.loads(path.read_text("utf-8")))
        valid = score.schema == SCHEMA and math.isfinite(score.mean) and math.isfinite(score.std)
    except (OSError, ValueError, TypeError) as error:
        raise HubError(f"{path}: not an evaluation ({error}); measure again with `palus enjoy`") from error
    if not valid:
        raise HubError(f"{path}: an evaluation of schema {score.schema} with mean {score.mean}; measure again")
    return score


def write_agent_card(facts: CardFacts, score: AgentScore | None, video: bool) -> str:
    """The whole README.md. The same facts give the same text, so an unchanged push changes nothing."""
    data = {} if score is None else {"model-index": [_index_entry(score)]}
    front = f"---\n{CARD_MARK}\n{front_matter(Card(data), agent_labels(facts.env_id))}---\n"
    sections = (
        f"# An **APPO** agent for **{facts.env_id}**",
        _origin(facts, score),
        _score(score),
        "## Watch it\n\n[replay.mp4](replay.mp4) plays in any browser." if video else "",
        _training(facts),
        "## Run it\n\n"
        f"    palus pull {facts.repo_id} agent{facts.hub_option}\n"
        "    palus enjoy agent --max-num-episodes 10\n\n"
        f"`{facts.env_id}.onnx` runs without PyTorch: raw observations and `recurrent_in` go in, action probabilities "
        "and `recurrent_out` come out.",
    )
    return "\n".join([front, *(f"{section.rstrip()}\n" for section in sections if section)])


def _index_entry(score: AgentScore) -> dict[str, object]:
    metric = {"type": "mean_reward", "value": score.text, "name": "mean_reward", "verified": False}
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": score.env_id, "type": score.env_id},
        "metrics": [metric],
    }
    return {"name": "APPO", "results": [result]}


def _origin(facts: CardFacts, score: AgentScore | None) -> str:
    steps = facts.steps if facts.steps is not None else score.steps if score else None
    if steps is None:
        return ""
    minutes = "" if facts.wall_seconds is None else f" in {facts.wall_seconds / 60:.1f} minutes"
    rating = "" if facts.elo is None else f" Its self-play rating was {facts.elo:.0f}."
    return f"Trained with palus for {steps:,} engine frames{minutes}.{rating}"


def _score(score: AgentScore | None) -> str:
    if score is None:
        return ""
    kind = "best" if score.best else "newest"
    how = "took its likeliest action" if score.deterministic else "drew its actions"
    return (
        f"## How good\n\n**{score.text}** over {score.episodes} episodes (mean and standard deviation of the true "
        f"objective; with shaping the mean reward is {score.mean_reward:.2f}). The run's {kind} policy played and "
        f"{how}.\n\nMean minus standard deviation, as course leaderboards rank: **{score.mean - score.std:.2f}**."
    )


def _training(facts: CardFacts) -> str:
    curve = "" if facts.curve is None else f"![{facts.curve}](training_curve.svg)\n\n"
    return f"## How it was trained\n\n{curve}All settings: `configuration.yaml`; `palus train configuration.yaml`."
