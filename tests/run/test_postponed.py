"""What is put off while a device computes tells what it would have told at once."""

import dataclasses
import json
import time

import pytest
from places import HERE

import palus.train
from palus.config import load_run
from palus.errors import StorageError
from palus.progress import PROGRESS
from palus.run.postponed import Postponed
from palus.run.saving import write_policy
from palus.train import Run, train

RUN = [
    "palus.matmul=highest", "palus.threads=1", "env_settings.seed=7", "palus.baseline_pairs=1",
    "palus.baseline_interval=2000", "behaviors.SoccerTwos.trainer_type=ppo", "behaviors.SoccerTwos.max_steps=9000",
    "behaviors.SoccerTwos.summary_freq=500", "behaviors.SoccerTwos.checkpoint_interval=4000",
    "behaviors.SoccerTwos.self_play.save_steps=700", "palus.env_options.max_steps=50",
]  # fmt: skip


def book_of(folder):
    return json.loads((folder / "debug" / "league" / "league.json").read_text())


def told(folder, *more):
    """What a run writes for readers, without the time that it took; the book after every time that it was written."""
    run, books = load_run("debug", [*RUN, *more, f"checkpoint_settings.results_dir={folder}"]), []

    def follow(parts):
        write = parts.saving.write_book

        def written(book, steps):
            write(book, steps)
            books.append(book_of(folder))

        parts.saving.write_book = written

    train(run, on_start=follow)
    lines = [json.loads(line) for line in (folder / "debug" / PROGRESS).read_text().splitlines()]
    for line in lines:
        for name in ("seconds", "started"):
            line.pop(name, None)
        values = line.get("values", {})
        line["values"] = {tag: value for tag, value in values.items() if not tag.startswith("Performance/")}
    return lines, books


@pytest.mark.parametrize("more", [(), pytest.param(("palus.league.counting=reference",), marks=pytest.mark.slow)])
def test_what_was_put_off_tells_what_it_would_have_told_at_once(tmp_path, monkeypatch, more):
    monkeypatch.setattr(palus.train, "BOOK_SECONDS", -1.0)
    at_once = told(tmp_path / "at_once", *more)
    monkeypatch.setattr("palus.run.computing.Postponed", lambda waits: Postponed(waits=True))
    later = told(tmp_path / "later", *more)
    assert sum(line["kind"] == "summary" for line in at_once[0]) > 18 and len(at_once[1]) > 4
    assert later == at_once


def away(monkeypatch, folder):
    """A run on a device whose snapshots wait."""
    monkeypatch.setattr("palus.run.parts.place_of", lambda setting: HERE)
    run = load_run("debug", [*RUN, "palus.baseline_interval=0", f"checkpoint_settings.results_dir={folder}"])
    return Run(run)


def test_it_is_done_while_the_device_computes(tmp_path, monkeypatch):
    parts = away(monkeypatch, tmp_path)
    learner, summaries = parts.trainees[0].learner, []
    finish = learner.finish

    def finished():
        text = (tmp_path / "debug" / PROGRESS).read_text()
        summaries.append(text.count('"summary"'))
        finish()

    monkeypatch.setattr(learner, "finish", finished)
    with parts.report:
        parts.iterate()
        begun = time.perf_counter()
        parts.iterate()
        assert summaries == [0, 4]
        assert parts.report.lines[0].pace[-1][0] < begun  # when the first was over, not when it was told of
        newest = max(parts.league.snapshots)
        waiting = parts.saving.path(parts.trainees[0], newest)
        assert newest == 2 and not waiting.exists()
        parts.saving.load_policy(parts.saving.find(newest - 1))
        parts.saving.load_policy(parts.saving.find(newest))  # though it is not there yet
        parts.save()
        assert waiting.exists()
    parts.close()


def test_a_snapshot_that_could_not_be_written_is_written_before_a_checkpoint_needs_it(tmp_path, monkeypatch):
    parts, full = away(monkeypatch, tmp_path), [True, True]  # when it is its turn, and at a checkpoint

    def write(*given, **more):
        if full and full.pop():
            raise StorageError("no space left")
        write_policy(*given, **more)

    with parts.report:
        parts.save()
        parts.iterate()
        monkeypatch.setattr("palus.run.saving.write_policy", write)
        with pytest.raises(StorageError):
            parts.save()
        waiting = parts.saving.path(parts.trainees[0], 1)
        assert not waiting.exists()
        parts.save()
        assert waiting.exists()
    parts.close()


def test_a_run_that_raises_tells_of_its_last_rollout(tmp_path, monkeypatch):
    parts = away(monkeypatch, tmp_path)
    with pytest.raises(KeyError), parts.report:
        parts.iterate()
        raise KeyError
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "debug" / PROGRESS).read_text().splitlines()]
    assert kinds == ["run", *["summary"] * 4, "end"]
    parts.save()  # after the report has ended
    parts.close()


@pytest.mark.parametrize("beside", [False, True])
def test_opponents_are_drawn_beside_the_learner_as_they_stood_before(tmp_path, monkeypatch, beside):
    """Matches begin while it learns (APPO): what they are cast by does not change meanwhile."""
    parts, said = away(monkeypatch, tmp_path), []
    parts.maker = dataclasses.replace(parts.maker, beside=beside)
    rate, finish = parts.league.rate, parts.trainees[0].learner.finish
    monkeypatch.setattr(parts.league, "rate", lambda matches: (said.append("rated"), rate(matches)))
    monkeypatch.setattr(parts.trainees[0].learner, "finish", lambda: (said.append("learned"), finish()))
    with parts.report:
        parts.iterate()
        parts.iterate()
    assert said == ["learned", "rated"] * 2 if beside else ["rated", "learned"] * 2
    parts.close()
