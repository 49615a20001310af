"""README.md of a model: what it is, how strong, how it was trained, and how to run it or play against it.

Writes one where nobody has; a card with words of its own keeps them and only gains the tags by which arenas find it.
An agent's score stands in the front matter too, as "mean +/- std" of `mean_reward`, where course leaderboards read it.
Source: the model-index metadata of huggingface.co's model cards.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from palus.envs import arena_games
from palus.errors import HubError
from palus.export.bundle import Provenance
from palus.export.unity_file import unity_gaps
from palus.files import write_text
from palus.hub.card import Card, read_card
from palus.hub.layout import is_ml_agents_game
from palus.hub.probe_file import PROBE_PICTURE, Probe
from palus.hub.score import AgentScore, Rating
from palus.ratings.interval import wilson

CARD_MARK = "# Written by palus at every checkpoint and push. Delete this line and palus keeps your text."
"""A comment in the front matter of every README.md that palus may write anew."""

_FRONT = re.compile(r"[^\S\n]*---[^\S\n]*\n(.*?)^[^\S\n]*---[^\S\n]*(\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Labels:
    """What hubs file a model under: the library that runs it, and tags that leaderboards search for."""

    library: str
    tags: tuple[str, ...]


NAMED_OPPONENTS = 10
"""Of a rating's pool that a card names."""


@dataclass(frozen=True)
class CardFacts:
    """What a card tells. Unknown things are None or empty and left out.

    env_id: what it plays, which is also the name of its model. agent: of a game of palus, measured by its own score,
    no team of a game of ML-Agents. repo_id: None in a run's folder. hub_option: what a reader adds to `palus pull` to
    reach the same hub, with a leading blank. curve: the training curve in words. replay, video: the repository has one.
    probe: of this very model. unity_gaps: why Unity cannot load it, () where it can.
    """

    env_id: str
    provenance: Provenance
    repo_id: str | None = None
    hub_option: str = ""
    rating: Rating | None = None
    curve: str | None = None
    replay: bool = False
    agent: bool = False
    score: AgentScore | None = None
    video: bool = False
    probe: Probe | None = None
    unity_gaps: tuple[str, ...] = ()


def labels_of(env_id: str, agent: bool) -> Labels:
    """The labels by which leaderboards find an agent by its game, or ML-Agents' models, in its order; and ours."""
    general = (env_id, "deep-reinforcement-learning", "reinforcement-learning")
    if agent:
        return Labels("palus", (*general, "palus"))
    return Labels("ml-agents", (*general, f"ML-Agents-{env_id}", "palus"))


def write_card(facts: CardFacts) -> str:
    """The whole README.md. The same facts give the same text, so an unchanged push changes nothing."""
    data = {} if facts.score is None else {"model-index": [_index_entry(facts.score)]}
    front = f"---\n{CARD_MARK}\n{front_matter(Card(data), labels_of(facts.env_id, facts.agent))}---\n"
    trainer = facts.provenance.trainer_type
    team = f"# A **{trainer}** team" if trainer else "# A team"
    sections = (
        f"{'# An **APPO** agent' if facts.agent else team} for **{facts.env_id}**",
        _origin(facts),
        _strength(facts),
        _score(facts.score),
        _exploitability(facts.probe),
        _training(facts),
        *_watch(facts),
        _use(facts),
    )
    return "\n".join([front, *(f"{section.rstrip()}\n" for section in sections if section)])


def refresh_card(folder: Path) -> None:
    """Write README.md of a bundle as its bundle.json tells, unless somebody made it theirs. Raises StorageError.

    Other games' agents get their card when they are published, since `palus enjoy` measures them before.
    """
    facts = json.loads((folder / "bundle.json").read_text("utf-8"))
    provenance = Provenance(**{part.name: facts[part.name] for part in fields(Provenance)})
    readme = folder / "README.md"
    ours = not readme.exists() or is_written_by_us(readme.read_text("utf-8", errors="replace"))
    if ours and is_ml_agents_game(provenance.env_id):
        gaps = gaps_of(folder / f"{facts['behavior']}.onnx")
        write_text(readme, write_card(CardFacts(facts["behavior"], provenance, unity_gaps=gaps)))


def gaps_of(model: Path) -> tuple[str, ...]:
    """`unity_gaps` of a file; () where it is not there."""
    return unity_gaps(model.read_bytes()) if model.is_file() else ()


def is_written_by_us(card: str) -> bool:
    """Whether nobody claimed this card for words of their own."""
    return CARD_MARK in card


def keep_card(card: str, labels: Labels, where: str) -> str:
    """A card written by hand, word for word, with the labels completed in its front matter.

    where: how messages call the card. Raises HubError when its front matter cannot be read.
    """
    front = _FRONT.match(card)
    read = read_card(card.encode()) if front and front[1] else Card()
    if read.warning is not None:
        raise HubError(f"{where}: {read.warning}; repair it, or let --new-card replace the card")
    listed = read.data.get("tags")
    every = {*labels.tags, labels.library}
    complete = isinstance(listed, list) and every <= {*read.tags} and read.library_name == labels.library
    return card if complete else f"---\n{front_matter(read, labels)}---\n{card[front.end() if front else 0 :]}"


def front_matter(card: Card, labels: Labels) -> str:
    """Labels added to what is there; tags become a list, also where ML-Agents joined them with commas."""
    kept = [tag for tag in card.tags if tag != card.library_name]
    every = list(dict.fromkeys([*kept, *labels.tags]))
    dumped: str = yaml.safe_dump({**card.data, "library_name": labels.library, "tags": every}, sort_keys=False)
    return dumped


def share_text(share: float, pairs: int | None) -> str:
    """A share of points with its 95 % interval and the number of mirrored pairs, where that is known."""
    if not pairs:
        return f"{share:.1%}"
    low, high = wilson(share, 2 * pairs)
    return f"{share:.1%} ({100 * low:.0f} to {100 * high:.0f} %, {pairs} mirrored pairs)"


def _index_entry(score: AgentScore) -> dict[str, object]:
    metric = {"type": "mean_reward", "value": score.text, "name": "mean_reward", "verified": False}
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": score.env_id, "type": score.env_id},
        "metrics": [metric],
    }
    return {"name": "APPO", "results": [result]}


def _origin(facts: CardFacts) -> str:
    steps, seconds = facts.provenance.steps, facts.provenance.wall_seconds
    if steps is None and facts.score is not None:
        steps = facts.score.steps
    if steps is None:
        return ""
    what = f"with palus for {steps:,} engine frames" if facts.agent else f"for {steps:,} steps"
    return f"Trained {what}{'' if seconds is None else f' in {seconds / 60:.1f} minutes'}."


def _strength(facts: CardFacts) -> str:
    rows = []
    if facts.rating is not None:
        r = facts.rating
        low, high = r.rank_range
        place = f"rank {low}" if low == high else f"rank {low} to {high}"
        rows.append(f"| rating | {r.rating:.0f} ± {r.half_width:.0f}, {place} of {r.players}, {r.games} games |")
    if facts.provenance.elo is not None:
        rows.append(f"| Elo of its self-play | {facts.provenance.elo:.0f} |")
    rows += [
        f"| share of points against {name} | {share_text(share, facts.provenance.result_pairs)} |"
        for name, share in facts.provenance.results.items()
    ]
    if not rows:
        return ""
    note = "The rating is a Bradley-Terry fit over all games, 400 points = 10:1 odds, ± a 95 % interval.\n"
    if facts.rating is not None and facts.rating.opponents:
        named, more = facts.rating.opponents[:NAMED_OPPONENTS], len(facts.rating.opponents) - NAMED_OPPONENTS
        others = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        note += f"It holds in this pool only, whose mean is 1200: this model, {others}.\n"
    return "\n".join(["## How strong", "", "| measured | |", "|---|---|", *rows, "", note if facts.rating else ""])


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


def _exploitability(probe: Probe | None) -> str:
    if probe is None:
        return ""
    what = "so its exploitability is" if probe.symmetric else "so what can be won from it is"
    pairs = f"{probe.best.pairs} {'mirrored pairs' if probe.symmetric else f'matches, as {probe.behavior}'}"
    return (
        f"## Exploitability\n\n![Share of points of a best response, step by step]({PROBE_PICTURE})\n\n"
        f"A best response, trained against this model alone ({probe.budget}), takes **{probe.best.text}** of the "
        f"points in {pairs} that did not choose its checkpoint; {what} at least **{probe.bound:.2f}** points per match "
        "(win 1, loss -1), by the lower end of the 95 % interval. A longer `palus probe` may find more."
    )


def _training(facts: CardFacts) -> str:
    if facts.curve is None and not facts.agent:
        return ""
    curve = "" if facts.curve is None else f"![{facts.curve}](training_curve.svg)\n\n"
    again = "; `palus train configuration.yaml`" if facts.agent else ""
    return f"## How it was trained\n\n{curve}All settings: `configuration.yaml`{again}."


def _watch(facts: CardFacts) -> tuple[str, ...]:
    """How to see it play: films and replays first, then how to fetch it and let it play."""
    pull = f"    palus pull {facts.repo_id} {{}}{facts.hub_option}"
    game = arena_games().get(facts.env_id)
    house = game.house if game else ("random",)
    if facts.repo_id is None:
        replay = f"palus match . {house[-1]} --pairs 20 --replay match.replay && palus watch match.replay"
        return (f"Watch it play against the house bot:\n\n    {replay}",)
    if facts.agent:
        video = "## Watch it\n\n[replay.mp4](replay.mp4) plays in any browser." if facts.video else ""
        return video, f"## Run it\n\n{pull.format('agent')}\n    palus enjoy agent --max-num-episodes 10"
    download = "## Watch it\n\nDownload [replay.html](replay.html) and open it in any browser, or:\n\n"
    return (
        f"{download}{pull.format('rival')} && palus watch rival/replay.match" if facts.replay else "",
        f"## Play against it\n\n{pull.format('rival')}\n    palus match YOUR_MODEL rival --pairs 200\n\n"
        f"`YOUR_MODEL` is an `.onnx` file, a run's folder, or {', '.join(f'`{name}`' for name in house)}.",
    )


def _use(facts: CardFacts) -> str:
    unity = f" Unity cannot load it: {'; '.join(facts.unity_gaps)}." if facts.unity_gaps else ""
    if facts.agent:
        return (
            f"`{facts.env_id}.onnx` runs without PyTorch: raw observations and `recurrent_in` go in, action "
            f"probabilities and `recurrent_out` come out.{unity}"
        )
    if unity:
        return f"## Use it elsewhere\n\n`{facts.env_id}.onnx` runs wherever ONNX does.{unity}"
    return (
        f"## Use it elsewhere\n\n`{facts.env_id}.onnx` has the inputs and outputs of "
        "[ML-Agents](https://github.com/Unity-Technologies/ml-agents) and drops into a Unity scene as it is."
    )
