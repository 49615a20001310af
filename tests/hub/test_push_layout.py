"""What a push contains: the files of `mlagents-push-to-hf`, a card that says what is known, the curve of the run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from small_run import SPEC, make_run, policy_model, write_events

from palus.envs import arena_games
from palus.errors import HubError
from palus.export.bundle import Provenance, write_bundle
from palus.hub.card import read_card
from palus.hub.layout import read_run, repository_files
from palus.hub.model_card import CardFacts, keep_card, labels_of, refresh_card, write_card
from palus.hub.publish import publish
from palus.hub.score import Rating, find_rating
from palus.hub.target import HUGGING_FACE, FolderTarget, HubTarget, parse_target
from palus.hub.training_curve import describe, draw_curves, read_curves, ticks

TAGS = ["SoccerTwos", "deep-reinforcement-learning", "reinforcement-learning", "ML-Agents-SoccerTwos", "palus"]


def front_matter(card: str) -> dict[str, object]:
    return yaml.safe_load(card.split("---\n")[1])


def test_a_run_becomes_the_repository_that_mlagents_would_push(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "striker"))
    files = repository_files(run, "a card", {"replay.match": b"goals"})
    events = run.event_files[0].name
    assert list(files) == [
        ".gitattributes",
        "README.md",
        "SoccerTwos.onnx",
        "SoccerTwos/SoccerTwos-1000000.onnx",
        "SoccerTwos/SoccerTwos-2000000.onnx",
        "SoccerTwos/checkpoint.pt",
        f"SoccerTwos/{events}",
        "bundle.json",
        "config.json",
        "configuration.yaml",
        "replay.match",
        "run_logs/training_status.json",
    ]
    assert files["README.md"] == b"a card"
    assert json.loads(files["config.json"])["behaviors"]["SoccerTwos"]["max_steps"] == 3000000
    assert (run.name, run.behavior, run.game, run.trainer_type) == ("striker", "SoccerTwos", "SoccerTwos", "poca")
    settings = {"env_settings": {"env_path": "Builds/Game"}}
    assert replace(run, configuration=run.configuration | settings).is_of_executable and not run.is_of_executable
    resumable = read_run(tmp_path / "striker", snapshots=True)
    assert resumable.files.keys() - run.files.keys() == {"SoccerTwos/snapshots/snapshot-00001.npz"}


def test_a_bare_model_is_published_under_the_name_that_arenas_read(tmp_path: Path) -> None:
    model = make_run(tmp_path / "run") / "SoccerTwos.onnx"
    stranger = model.rename(tmp_path / "stranger.onnx")
    assert list(repository_files(read_run(stranger), "card", {})) == [".gitattributes", "README.md", "SoccerTwos.onnx"]


def doubled(times: int) -> str:
    """A few lines that stand for 2^times values."""
    return "a0: &a0 [x, x]\n" + "".join(f"a{k + 1}: &a{k + 1} [*a{k}, *a{k}]\n" for k in range(times))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "SoccerTwos.onnx").unlink(), "found no .onnx file, expected SoccerTwos.onnx"),
        (lambda run: (run / "configuration.yaml").write_text("behaviors: [a, {"), "configuration.yaml: cannot be read"),
        (
            lambda run: (run / "configuration.yaml").write_text(doubled(20)),
            r"configuration.yaml: cannot be read \(more than 100000 values with its aliases written out",
        ),
        (lambda run: (run / "bundle.json").write_text("[" * 100_000), "bundle.json: cannot be read"),
        (lambda run: [(run / f"{i}.txt").touch() for i in range(1000)], "a repository at most 1000"),
    ],
)
def test_a_folder_that_is_no_run_is_explained(tmp_path: Path, spoil: object, message: str) -> None:
    run = make_run(tmp_path / "run")
    spoil(run)  # type: ignore[operator]
    with pytest.raises(HubError, match=message):
        read_run(run)


def test_a_new_card_has_a_list_of_tags_and_tells_what_is_known() -> None:
    rating = Rating(1312.4, 28.3, (2, 3), 3, 400, ("random", "bob/two"))
    provenance = Provenance("SoccerTwos", "poca", 3000000, 90.0, 1325.0, {"random": 0.75}, 50)
    card = write_card(CardFacts("SoccerTwos", provenance, "ada/striker", " --hub http://h:1"))
    assert front_matter(card) == {"library_name": "ml-agents", "tags": TAGS}
    assert read_card(card.encode()).warning is None
    assert "# A **poca** team for **SoccerTwos**" in card
    assert "Trained for 3,000,000 steps in 1.5 minutes." in card
    # Wilson's interval by hand: 100 games, center (0.75 + 0.0192) / 1.0384, half 0.0833.
    assert "| share of points against random | 75.0% (66 to 82 %, 50 mirrored pairs) |" in card
    assert "palus pull ada/striker rival --hub http://h:1" in card
    assert "run's folder, or `random`, `ball-chaser`, `goalie-striker`." in card
    assert "replay" not in card and "training_curve" not in card
    facts = CardFacts("SoccerTwos", Provenance(""), "ada/striker", rating=rating, curve="Elo rose", replay=True)
    ranked = write_card(facts)
    assert "| rating | 1312 ± 28, rank 2 to 3 of 3, 400 games |" in ranked
    assert "It holds in this pool only, whose mean is 1200: this model, random, bob/two." in ranked
    assert "![Elo rose](training_curve.svg)" in ranked
    assert "[replay.html](replay.html)" in ranked
    assert "`palus train configuration.yaml` trains another one" in ranked
    for game, inside in (("Crawler", False), ("SoccerTwos", True)):
        elsewhere = write_card(CardFacts(game, Provenance(""), "ada/x", curve="Elo rose", in_executable=inside))
        assert "`mlagents-learn configuration.yaml --env=YOUR_GAME` trains another one" in elsewhere


def test_a_unity_agent_without_self_play_is_run_and_not_told_to_play_matches() -> None:
    def card(provenance: Provenance) -> str:
        return write_card(CardFacts("Crawler", provenance, "ada/x", in_executable=True))

    ours = card(Provenance("Crawler", "ppo", 1000, 60.0))
    assert "# A **ppo** agent for **Crawler**" in ours and "palus match" not in ours
    assert "palus pull ada/x agent\n    palus enjoy agent --env YOUR_GAME --max-num-episodes 10" in ours
    theirs = card(Provenance("Crawler", "ppo", 1000))  # ML-Agents', of which palus has the model alone
    assert "palus match" in theirs and "palus enjoy" not in theirs
    rated = card(Provenance("Crawler", "poca", 1000, 60.0, 1325.0))
    assert "# A **poca** team for **Crawler**" in rated and "palus match YOUR_MODEL rival --env YOUR_GAME" in rated


def test_a_team_of_two_behaviors_is_of_its_game_not_of_the_first_of_them(tmp_path: Path) -> None:
    folder, behaviors = tmp_path / "team", {"Goalie": {"trainer_type": "poca"}, "Striker": {"trainer_type": "poca"}}
    specs = dict.fromkeys(behaviors, SPEC)
    configuration = yaml.safe_dump({"behaviors": behaviors})
    provenance = Provenance("StrikersVsGoalie", "poca", 1000)
    write_bundle(folder, dict.fromkeys(behaviors, policy_model()), specs, configuration, provenance)
    refresh_card(folder)
    own = (folder / "README.md").read_text()
    assert "palus match . goalie-striker --game StrikersVsGoalie --pairs 20" in own
    for kept in (folder / "bundle.json", folder / "README.md"):  # ML-Agents leaves neither, and names no game
        publish(read_run(folder), "ada/team", FolderTarget(tmp_path / "pool"), new_card=True)
        card = (tmp_path / "pool" / "ada" / "team" / "README.md").read_text()
        assert "# A **poca** team for **StrikersVsGoalie**" in card
        assert "ML-Agents-StrikersVsGoalie" in read_card(card.encode()).tags
        assert "palus match YOUR_MODEL rival --game StrikersVsGoalie --pairs 200" in card
        assert "`Striker.onnx` has the inputs" in card and "`Goalie.onnx` has the inputs" in card
        kept.unlink()


def test_a_card_has_every_tag_by_which_arenas_look_for_models_of_its_game() -> None:
    for game in arena_games().values():
        labels = labels_of(game.env, agent=game.filmed)
        assert set(game.tags) <= {*labels.tags, labels.library}
    assert labels_of("MyUnityGame", agent=False).tags[3:] == ("ML-Agents-MyUnityGame", "palus")


def test_the_rating_is_found_by_the_hash_of_the_model_not_by_its_name() -> None:
    row = {"rating": 1300.0, "half_width": 20.0, "rank_range": [1, 2], "games": 100}
    board = {"standings": [{**row, "name": "me", "sha256": "b" * 64}, {**row, "name": "x", "sha256": "a" * 64}]}
    assert find_rating(board, "a" * 64) == Rating(1300.0, 20.0, (1, 2), 2, 100, ("me",))
    assert find_rating(board, "c" * 64) is None
    with pytest.raises(HubError, match="palus rank FOLDER --json"):
        find_rating({"results": []}, "a" * 64)


@pytest.mark.parametrize(
    ("front", "expected_tags"),
    [
        ("", TAGS),
        ("---\nlicense: mit\n---\n", TAGS),
        ("---\nlicense: mit\ntags: SoccerTwos, my own\n---\n", ["SoccerTwos", "my own", *TAGS[1:]]),
        ("---\nlibrary_name: ml-agents\ntags: [mine]\n---\n", ["mine", *TAGS]),
    ],
)
def test_a_card_written_by_hand_keeps_its_words_and_gains_the_tags(front: str, expected_tags: list[str]) -> None:
    body = "\n# My own words\n\n---\n\nand a rule\n"
    kept = keep_card(front + body, labels_of("SoccerTwos", agent=False), "README.md")
    metadata = front_matter(kept)
    assert metadata["tags"] == expected_tags
    assert metadata["library_name"] == "ml-agents"
    assert metadata.get("license") == ("mit" if "mit" in front else None)
    assert kept.endswith(f"---\n{body}")
    assert keep_card(kept, labels_of("SoccerTwos", agent=False), "README.md") == kept


def test_a_card_whose_front_matter_is_broken_is_named() -> None:
    with pytest.raises(HubError, match=r"README.md: the front matter is not valid YAML .*--new-card"):
        keep_card("---\ntags: [a\n---\nwords", labels_of("SoccerTwos", agent=False), "README.md")


def test_training_on_leaves_a_card_alone_that_a_person_wrote(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "README.md").write_text("my words")
    provenance = Provenance("SoccerTwos", "poca", 4000000, 120.0)
    write_bundle(run, {"SoccerTwos": policy_model(1)}, {"SoccerTwos": SPEC}, "behaviors: {}", provenance)
    refresh_card(run)
    assert (run / "README.md").read_text() == "my words"
    (run / "README.md").unlink()
    (run / "README.md").mkdir()
    refresh_card(run)
    assert [*(run / "README.md").iterdir()] == []
    (run / "README.md").rmdir()
    refresh_card(run)
    card = (run / "README.md").read_text()
    assert "palus match . goalie-striker" in card and "palus pull" not in card
    assert front_matter(card) == {"library_name": "ml-agents", "tags": TAGS}


def test_the_curve_is_read_from_tensorboard_and_drawn(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "run"))
    (curve,) = read_curves(run.event_files)
    assert curve.points == ((1000000, 1200.0), (2000000, 1250.5), (3000000, 1325.0))
    assert describe(curve) == "self-play Elo from 1200 to 1325 over 3M steps"
    image = draw_curves([curve]).decode()
    assert image.count("<polyline") == 1
    for label in (">1200<", ">1300<", ">1350<", ">0<", ">3M<", "self-play Elo over steps"):
        assert label in image
    assert draw_curves(read_curves(run.event_files)) == image.encode()


def test_a_cut_off_event_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    write_events(tmp_path, "Environment/Cumulative Reward", (0.5, 0.25, -1.0))
    (path,) = tmp_path.glob("events.out.tfevents.*")
    path.write_bytes(path.read_bytes()[:-10])
    (curve,) = read_curves([path])
    assert curve.points == ((1000000, 0.5), (2000000, 0.25))
    path.write_bytes(b"\xff" * 5000)
    assert read_curves([path]) == ()


def test_ticks_are_round_numbers_around_the_data() -> None:
    assert ticks(1213, 1676) == [1200, 1400, 1600, 1800]
    assert ticks(-0.47, 0.55) == [-0.5, 0, 0.5, 1.0]
    assert ticks(3, 3) == [3, 4]


def test_the_words_for_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert parse_target() == parse_target("huggingface.co") == HubTarget(HUGGING_FACE)
    assert parse_target("http://10.0.0.1:8000/") == parse_target("10.0.0.1:8000") == HubTarget("http://10.0.0.1:8000")
    assert parse_target(f"folder:{tmp_path}") == parse_target(str(tmp_path)) == FolderTarget(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.lan:81")
    assert parse_target() == HubTarget("http://hub.lan:81")
    for wrong in ("nowhere", "folder:", "http://user:secret@host", "http://host/ada/striker", "http://host:99999"):
        with pytest.raises(HubError, match=r"not (a hub|the address of a hub)|no folder is named"):
            parse_target(wrong)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("htp:/foo", "http://foo"),
        ("http:/10.0.0.1:8000", "http://10.0.0.1:8000"),
        ("https//hub.lan", "https://hub.lan"),
        ("HTTP://hub.lan/ada", "http://hub.lan"),
        ("localhost:8000/ada", "http://localhost:8000"),
        ("huggingface.co/ada", "huggingface.co"),
    ],
)
def test_a_slip_of_an_address_is_no_folder(slip: str, meant: str) -> None:
    with pytest.raises(HubError, match=rf"did you mean {re.escape(meant)}\?"):
        parse_target(slip)
    assert parse_target(f"folder:{slip}") == FolderTarget(Path(slip))


def test_a_path_is_a_folder_still() -> None:
    for path in ("pool/class", "./a:b", "~/pool", "C:/pool", "https-pool/x"):
        assert isinstance(parse_target(path), FolderTarget)
