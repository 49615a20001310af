"""README.md of a model: what it is, how strong, how it was trained, and how to run it or play against it.

Writes one where nobody has; a card with words of its own keeps them and only gains the tags by which arenas find it.
An agent's score stands in the front matter too, as "mean +/- std" of `mean_reward`, where course leaderboards read it.
Source: the model-index metadata of huggingface.co's model cards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import yaml

from palus.envs import arena_games
from palus.errors import HubError
from palus.export.bundle import Provenance
from palus.export.unity_file import unity_gaps
from palus.files import write_text
from palus.hub.card import Card, read_card
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

    game: what it plays. agent: measured by its own score, no team that matches tell about. repo_id: None in a run's
    folder. hub_option: what a reader adds to `palus pull` to reach the same hub, with a leading blank. curve: the
    training curve in words. replay, video: the repository has one. probe: of this very model. in_executable: it was
    trained in one of Unity's. unity_gaps: why Unity cannot load the model of a behavior, () where it can; without any
    there is one model, called like the game.
    """

    game: str
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
    in_executable: bool = False
    unity_gaps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def trainer(self) -> str:
        """`poca` of a team, `APPO` of an agent; "" when nobody knows."""
        trainer = self.provenance.trainer_type or ""
        return trainer.upper() if self.agent else trainer

    @property
    def is_alone(self) -> bool:
        """Whether palus trained it in a Unity game without self-play, so that its reward tells of it and no match."""
        told = self.provenance
        ours = self.in_executable and told.wall_seconds is not None  # of ML-Agents' runs nobody knows how long
        return ours and told.elo is None and self.game not in arena_games()


def labels_of(game: str, agent: bool) -> Labels:
    """The labels by which leaderboards and arenas find models of a game: those that it declares, and ours.

    agent: as of `CardFacts`; other games that no arena plays are taken for ones of ML-Agents.
    """
    declared = arena_games().get(game)
    own = declared.tags if declared else () if agent else ("ml-agents", f"ML-Agents-{game}")
    library = "ml-agents" if "ml-agents" in own else "palus"
    tags = (game, "deep-reinforcement-learning", "reinforcement-learning", *own, "palus")
    return Labels(library, tuple(tag for tag in dict.fromkeys(tags) if tag != "ml-agents"))


def write_card(facts: CardFacts) -> str:
    """The whole README.md. The same facts give the same text, so an unchanged push changes nothing."""
    data = {} if facts.score is None else {"model-index": [_index_entry(facts.score, facts.trainer or facts.game)]}
    front = f"---\n{CARD_MARK}\n{front_matter(Card(data), labels_of(facts.game, facts.agent))}---\n"
    sections = (
        _title(facts),
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
    try:
        ours = is_written_by_us(readme.read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        ours = True
    except OSError:  # a folder of that name, or a file that others may not read
        ours = False
    game = arena_games().get(provenance.env_id)
    if ours and game is not None and not game.filmed:
        gaps = {behavior: gaps_of(folder / file) for file, behavior in game.files.items()}
        write_text(readme, write_card(CardFacts(game.env, provenance, unity_gaps=gaps)))


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


def _title(facts: CardFacts) -> str:
    kind = "agent" if facts.agent or facts.is_alone else "team"
    what = f"**{facts.trainer}** {kind}" if facts.trainer else kind
    article = "An" if (facts.trainer or kind)[0].lower() == "a" else "A"
    return f"# {article} {what} for **{facts.game}**"


def _index_entry(score: AgentScore, name: str) -> dict[str, object]:
    metric = {"type": "mean_reward", "value": score.text, "name": "mean_reward", "verified": False}
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": score.env_id, "type": score.env_id},
        "metrics": [metric],
    }
    return {"name": name, "results": [result]}


def _origin(facts: CardFacts) -> str:
    steps, seconds = facts.provenance.steps, facts.provenance.wall_seconds
    if steps is None and facts.score is not None:
        steps = facts.score.steps
    if steps is None:
        return ""
    counted = "engine frames" if facts.provenance.trainer_type == "appo" else "steps"
    what = f"{'with palus ' if facts.agent else ''}for {steps:,} {counted}"
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
    ours = not facts.in_executable and (facts.agent or facts.game in arena_games())
    again = "palus train configuration.yaml" if ours else "mlagents-learn configuration.yaml --env=YOUR_GAME"
    return f"## How it was trained\n\n{curve}All settings: `configuration.yaml`; `{again}` trains another one."


def _watch(facts: CardFacts) -> tuple[str, ...]:
    """How to see it play: films and replays first, then how to fetch it and let it play."""
    pull = f"    palus pull {facts.repo_id} {{}}{facts.hub_option}"
    game = arena_games().get(facts.game)
    if facts.repo_id is None:
        return (f"Let it play against a house bot:\n\n    {' && '.join(game.trial('.'))}" if game else "",)
    sections = []
    if facts.video:
        sections.append("## Watch it\n\n[replay.mp4](replay.mp4) plays in any browser.")
    if facts.replay:
        download = "## Watch it\n\nDownload [replay.html](replay.html) and open it in any browser, or:\n\n"
        sections.append(f"{download}{pull.format('rival')} && palus watch rival/replay.match")
    if facts.agent or facts.is_alone:
        env = " --env YOUR_GAME" if facts.is_alone else ""
        sections.append(f"## Run it\n\n{pull.format('agent')}\n    palus enjoy agent{env} --max-num-episodes 10")
    if game is not None or not (facts.agent or facts.is_alone):
        where, house = (game.option, game.house) if game else (" --env YOUR_GAME", ("random",))
        own = "a folder of such models" if len(facts.unity_gaps) > 1 else "an `.onnx` file"
        sections.append(
            f"## Play against it\n\n{pull.format('rival')}\n    palus match YOUR_MODEL rival{where} --pairs 200\n\n"
            f"`YOUR_MODEL` is {own}, a run's folder, or {', '.join(f'`{name}`' for name in house)}."
        )
    return tuple(sections)


def _use(facts: CardFacts) -> str:
    files = (_of_file(name, gaps, facts.agent) for name, gaps in (facts.unity_gaps or {facts.game: ()}).items())
    return "\n\n".join(["## Use it elsewhere", *files])


def _of_file(behavior: str, gaps: tuple[str, ...], agent: bool) -> str:
    if agent or gaps:
        unity = f" Unity cannot load it: {'; '.join(gaps)}." if gaps else ""
        return f"`{behavior}.onnx` runs wherever ONNX does, without PyTorch.{unity}"
    return (
        f"`{behavior}.onnx` has the inputs and outputs of [ML-Agents](https://github.com/Unity-Technologies/ml-agents) "
        "and drops into a Unity scene as it is."
    )
