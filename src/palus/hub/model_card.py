"""README.md of a published model: what it is, how strong, how it was trained, and how to play against it.

Writes one where nobody has; a card with words of its own keeps them and only gains the tags by which arenas find it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from palus.errors import HubError
from palus.export.bundle import CARD_MARK, share_text
from palus.hub.card import Card, read_card


@dataclass(frozen=True)
class Labels:
    """What hubs file a model under: the library that runs it, and tags that leaderboards search for."""

    library: str
    tags: tuple[str, ...]


NAMED_OPPONENTS = 10
"""Of a rating's pool that a card names."""


@dataclass(frozen=True)
class Rating:
    """One line of a leaderboard.

    rating: 1200 is its mean, 400 points = 10:1 odds; half_width: of the 95 % interval. opponents: who else is on it.
    """

    rating: float
    half_width: float
    rank_range: tuple[int, int]
    players: int
    games: int
    opponents: tuple[str, ...] = ()


@dataclass(frozen=True)
class CardFacts:
    """What a card tells. Unknown things are None or empty and left out.

    hub_option: what a reader adds to `palus pull` to reach the same hub, with a leading blank.
    results: opponent -> share of points, over result_pairs mirrored pairs each. curve: the training curve in words.
    replay: the repository holds a replay.
    """

    env_id: str
    repo_id: str
    hub_option: str = ""
    trainer_type: str | None = None
    steps: int | None = None
    wall_seconds: float | None = None
    elo: float | None = None
    results: Mapping[str, float] = field(default_factory=dict)
    result_pairs: int | None = None
    rating: Rating | None = None
    curve: str | None = None
    replay: bool = False


def ml_agents_labels(env_id: str) -> Labels:
    """The labels by which leaderboards find ML-Agents' models, in its order, and ours."""
    general = ("deep-reinforcement-learning", "reinforcement-learning")
    return Labels("ml-agents", (env_id, *general, f"ML-Agents-{env_id}", "palus"))


def write_card(facts: CardFacts) -> str:
    """The whole README.md. The same facts give the same text, so an unchanged push changes nothing."""
    front = f"---\n{CARD_MARK}\n{front_matter(Card(), ml_agents_labels(facts.env_id))}---\n"
    trainer = f"A **{facts.trainer_type}** team" if facts.trainer_type else "A team"
    sections = (
        f"# {trainer} for **{facts.env_id}**",
        _origin(facts),
        _strength(facts),
        _training(facts),
        _replay(facts),
        _play_against(facts),
        _use(facts),
    )
    return "\n".join([front, *(f"{section.rstrip()}\n" for section in sections if section)])


def is_written_by_us(card: str) -> bool:
    """Whether nobody claimed this card for words of their own."""
    return CARD_MARK in card


def keep_card(card: str, labels: Labels, where: str) -> str:
    """A card written by hand, word for word, with the labels completed in its front matter.

    where: how messages call the card. Raises HubError when its front matter cannot be read.
    """
    front, body = _split(card)
    read = read_card(card.encode()) if front else Card()
    if read.warning is not None:
        raise HubError(f"{where}: {read.warning}; repair it, or let --new-card replace the card")
    listed = read.data.get("tags")
    every = {*labels.tags, labels.library}
    complete = isinstance(listed, list) and every <= {*read.tags} and read.library_name == labels.library
    return card if complete else f"---\n{front_matter(read, labels)}---\n{body}"


def find_rating(board: Mapping[str, Any], sha256: str) -> Rating | None:
    """The line of a `palus rank --json` leaderboard about the file of this hash; None when it did not take part.

    Raises HubError when it is not such a leaderboard.
    """
    try:
        standings = board["standings"]
        mine = next((s for s in standings if s["sha256"] == sha256), None)
        if mine is None:
            return None
        low, high = (int(rank) for rank in mine["rank_range"])
        others = tuple(str(line["name"]) for line in standings if line is not mine)
        figures = float(mine["rating"]), float(mine["half_width"]), (low, high), len(standings), int(mine["games"])
        return Rating(*figures, others)
    except (KeyError, TypeError, ValueError) as error:
        raise HubError(
            f"the leaderboard lacks {error}; write one with: palus rank FOLDER --json > board.json"
        ) from error


def front_matter(card: Card, labels: Labels) -> str:
    """Labels added to what is there; tags become a list, also where ML-Agents joined them with commas."""
    kept = [tag for tag in card.tags if tag != card.library_name]
    every = list(dict.fromkeys([*kept, *labels.tags]))
    dumped: str = yaml.safe_dump({**card.data, "library_name": labels.library, "tags": every}, sort_keys=False)
    return dumped


def _split(card: str) -> tuple[str, str]:
    """Front matter, empty when there is none, and the rest."""
    lines = card.splitlines(keepends=True)
    if lines and lines[0].strip() == "---":
        for i, line in enumerate(lines[1:], start=1):
            if line.strip() == "---":
                return "".join(lines[1:i]), "".join(lines[i + 1 :])
    return "", card


def _origin(facts: CardFacts) -> str:
    if facts.steps is None:
        return ""
    minutes = "" if facts.wall_seconds is None else f" in {facts.wall_seconds / 60:.1f} minutes"
    return f"Trained for {facts.steps:,} steps{minutes}."


def _strength(facts: CardFacts) -> str:
    rows = []
    if facts.rating is not None:
        r = facts.rating
        low, high = r.rank_range
        place = f"rank {low}" if low == high else f"rank {low} to {high}"
        rows.append(f"| rating | {r.rating:.0f} ± {r.half_width:.0f}, {place} of {r.players}, {r.games} games |")
    if facts.elo is not None:
        rows.append(f"| Elo of its self-play | {facts.elo:.0f} |")
    rows += [
        f"| share of points against {name} | {share_text(share, facts.result_pairs)} |"
        for name, share in facts.results.items()
    ]
    if not rows:
        return ""
    note = "The rating is a Bradley-Terry fit over all games, 400 points = 10:1 odds, ± a 95 % interval.\n"
    if facts.rating is not None and facts.rating.opponents:
        named, more = facts.rating.opponents[:NAMED_OPPONENTS], len(facts.rating.opponents) - NAMED_OPPONENTS
        others = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        note += f"It holds in this pool only, whose mean is 1200: this model, {others}.\n"
    return "\n".join(["## How strong", "", "| measured | |", "|---|---|", *rows, "", note if facts.rating else ""])


def _training(facts: CardFacts) -> str:
    if facts.curve is None:
        return ""
    return f"## How it was trained\n\n![{facts.curve}](training_curve.svg)\n\nAll settings: `configuration.yaml`."


def _replay(facts: CardFacts) -> str:
    if not facts.replay:
        return ""
    return (
        "## Watch it\n\nDownload [replay.html](replay.html) and open it in any browser, or:\n\n"
        f"    palus pull {facts.repo_id} rival{facts.hub_option} && palus watch rival/replay.match"
    )


def _play_against(facts: CardFacts) -> str:
    return (
        "## Play against it\n\n"
        f"    palus pull {facts.repo_id} rival{facts.hub_option}\n"
        "    palus match YOUR_MODEL rival --pairs 200\n\n"
        "`YOUR_MODEL` is an `.onnx` file, a run's folder, or `random`, `ball-chaser`, `goalie-striker`."
    )


def _use(facts: CardFacts) -> str:
    return (
        "## Use it elsewhere\n\n"
        f"`{facts.env_id}.onnx` has the inputs and outputs of "
        "[ML-Agents](https://github.com/Unity-Technologies/ml-agents) and drops into a Unity scene as it is."
    )
