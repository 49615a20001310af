"""What is put off while a device computes tells what it would have told at once."""

import json

import pytest
from places import HERE

from palus.config import load_run
from palus.progress import PROGRESS
from palus.run.postponed import Postponed
from palus.train import Run, train

RUN = [
    "palus.matmul=highest", "palus.threads=1", "env_settings.seed=7", "palus.baseline_pairs=1",
    "palus.baseline_interval=2000", "behaviors.SoccerTwos.trainer_type=ppo", "behaviors.SoccerTwos.max_steps=9000",
    "behaviors.SoccerTwos.summary_freq=500", "behaviors.SoccerTwos.checkpoint_interval=4000",
    "behaviors.SoccerTwos.self_play.save_steps=700", "palus.env_options.max_steps=50",
]  # fmt: skip


def told(folder, *more):
    """What a run writes for readers, without the time that it took."""
    run = load_run("debug", [*RUN, *more, f"checkpoint_settings.results_dir={folder}"])
    train(run)
    lines = [json.loads(line) for line in (folder / "debug" / PROGRESS).read_text().splitlines()]
    for line in lines:
        for name in ("seconds", "started"):
            line.pop(name, None)
        values = line.get("values", {})
        line["values"] = {tag: value for tag, value in values.items() if not tag.startswith("Performance/")}
    return lines, json.loads((folder / "debug" / "league" / "league.json").read_text())


@pytest.mark.parametrize("more", [(), ("palus.league.counting=reference",)])
def test_what_was_put_off_tells_what_it_would_have_told_at_once(tmp_path, monkeypatch, more):
    at_once = told(tmp_path / "at_once", *more)
    monkeypatch.setattr("palus.run.computing.Postponed", lambda waits: Postponed(waits=True))
    later = told(tmp_path / "later", *more)
    assert sum(line["kind"] == "summary" for line in at_once[0]) > 18
    assert later == at_once


def test_it_is_done_while_the_device_computes(tmp_path, monkeypatch):
    monkeypatch.setattr("palus.run.parts.place_of", lambda setting: HERE)
    run = load_run("debug", [*RUN, "palus.baseline_interval=0", f"checkpoint_settings.results_dir={tmp_path}"])
    parts = Run(run)
    learner, summaries = parts.trainees[0].learner, []
    finish = learner.finish

    def finished():
        text = (tmp_path / "debug" / PROGRESS).read_text()
        summaries.append(text.count('"summary"'))
        finish()

    monkeypatch.setattr(learner, "finish", finished)
    with parts.report:
        parts.iterate()
        parts.iterate()
        assert summaries == [0, 4]
        newest = max(parts.league.snapshots)
        waiting = parts.saving.path(parts.trainees[0], newest)
        assert newest == 2 and not waiting.exists()
        parts.saving.load_policy(parts.saving.find(newest - 1))
        parts.saving.load_policy(parts.saving.find(newest))  # though it is not there yet
        parts.save()
        assert waiting.exists()
    parts.close()
