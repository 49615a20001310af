"""What a run tells people and TensorBoard, word for word."""

import io
import json
import struct
import sys
from types import SimpleNamespace

import pytest
from events import read_values
from rich.console import Console
from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from full_disk import at_most
from palus.config import load_run
from palus.progress import PROGRESS
from palus.rollout.rollout import Episode
from palus.run.events import EventFile
from palus.run.folder import RunFolder
from palus.run.report import Report
from palus.run.timers import Timers
from palus.run.trainee import PolicyRecord, Trainee


class Told:
    """A report of the debug preset (summary_freq 4000) into a text and a folder."""

    def __init__(self, folder, trainer="poca", *overrides, **console):
        run = load_run("debug", [f"behaviors.SoccerTwos.trainer_type={trainer}", *overrides])
        self.text, self.folder = io.StringIO(), RunFolder(folder, ["SoccerTwos"])
        behavior = run.behaviors["SoccerTwos"]
        self.record = PolicyRecord(trainer == "poca", length_unit=None, strength=behavior.extrinsic.strength)
        names, learner = ("SoccerTwos",) * 3, SimpleNamespace(counts_frames=False)
        self.trainee = Trainee(
            0, *names, behavior, learner, self.folder.of("SoccerTwos"), self.record, SimpleNamespace()
        )
        self.timers = Timers()
        terminal = Console(file=self.text, width=60, **console)
        self.report = Report(run, [self.trainee], self.folder, self.timers, terminal)

    def add(self, step, seconds, episodes, stats, entropy, elo):
        self.record.add(episodes, stats, entropy)
        self.trainee.step = step
        self.report.advance(0, step, seconds, seconds, elo, {})

    def lines(self):
        return self.text.getvalue().splitlines()

    def values(self, step):
        """tag -> value of the scalars and histograms of one summary; speeds are what they are."""
        found = {tag: v for at, tag, v in read_values(self.folder.of("SoccerTwos")) if at == step}
        return {tag: value for tag, value in found.items() if not tag.startswith("Performance/")}


def stats(policy_loss=0.1, value_loss=0.2, baseline_loss=None, learning_rate=3e-4):
    found = {
        "Losses/Policy Loss": policy_loss,
        "Losses/Value Loss": value_loss,
        "Policy/Extrinsic Value Estimate": 1.5,
        "Policy/Learning Rate": learning_rate,
        "Policy/Epsilon": 0.2,
        "Policy/Beta": 0.005,
    }
    baseline = {"Losses/Baseline Loss": baseline_loss, "Policy/Extrinsic Baseline Estimate": 1.25}
    return found if baseline_loss is None else found | baseline


def episode(reward, group_reward, length=11):
    return Episode(0, 0, 0, True, length, reward, group_reward)


def test_the_line_of_a_poca_summary(tmp_path):
    told = Told(tmp_path)
    with told.report:
        told.add(4100, 12.3456, [episode(0.25, 1.0), episode(0.75, -0.5)], stats(baseline_loss=0.3), 3.0, 1203.337)
    assert told.lines() == [
        "SoccerTwos. Step: 4000. Time Elapsed: 12.346 s. Mean Reward: 0.500. Mean Group Reward: 0.250. Training. "
        "ELO: 1203.337."
    ]


def test_what_a_group_was_paid_is_told_by_those_who_saw_its_end(tmp_path):
    told, early = Told(tmp_path), Episode(0, 0, 0, True, 3, 0.25, 0.5, left_early=True)
    with told.report:
        told.add(4000, 1.0, [early, episode(0.75, 1.0)], stats(baseline_loss=0.3), 3.0, None)
        told.add(8000, 1.0, [early], stats(baseline_loss=0.3), 3.0, None)
    assert told.values(4000)["Environment/Group Cumulative Reward"] == 1.0
    assert told.values(4000)["Environment/Cumulative Reward"] == 0.5
    assert "Environment/Group Cumulative Reward" not in told.values(8000)
    assert told.lines()[1].endswith("Mean Reward: 0.250. Training.")


def test_an_iteration_without_an_update_counts_for_its_episodes(tmp_path):
    told = Told(tmp_path)
    with told.report:
        told.add(3000, 1.0, [episode(0.5, 1.0)], {}, 0.0, None)
        told.add(4000, 1.0, [], stats(baseline_loss=0.3), 3.0, None)
    assert told.values(4000)["Policy/Entropy"] == 3.0
    assert told.values(4000)["Environment/Cumulative Reward"] == 0.5


def test_a_summary_has_what_only_some_updates_tell(tmp_path):
    """SAC's signals may learn more rarely than the rest."""
    told = Told(tmp_path)
    with told.report:
        told.add(3000, 1.0, [], {**stats(baseline_loss=0.3), "Losses/RND Loss": 4.0}, 3.0, None)
        told.add(4000, 1.0, [], stats(baseline_loss=0.3), 3.0, None)
    assert told.values(4000)["Losses/RND Loss"] == 4.0


def test_the_line_of_a_ppo_summary_without_self_play(tmp_path):
    told = Told(tmp_path, "ppo")
    with told.report:
        told.add(4000, 1.0, [episode(0.0, 1.0), episode(0.0, -1.0)], stats(), 3.0, None)
    assert told.lines() == [
        "SoccerTwos. Step: 4000. Time Elapsed: 1.000 s. Mean Reward: 0.000. Std of Reward: 1.000. Training."
    ]


def test_a_summary_without_episodes_says_so(tmp_path):
    told = Told(tmp_path)
    with told.report:
        told.add(4000, 1.0, [], stats(baseline_loss=0.3), 3.0, None)
    assert told.lines() == [
        "SoccerTwos. Step: 4000. Time Elapsed: 1.000 s. No episode was completed since last summary. Training."
    ]
    assert not [tag for tag in told.values(4000) if tag.startswith("Environment/")]


def test_summaries_carry_round_steps_and_come_once_per_multiple(tmp_path):
    told = Told(tmp_path)
    with told.report:
        for step in (2048, 4096, 6144, 7999, 8001, 20_000):
            told.add(step, 1.0, [episode(0, 1)], stats(baseline_loss=0.3), 3.0, None)
    steps = [int(line.split(". ")[1].removeprefix("Step: ")) for line in told.lines()]
    assert steps == [4000, 8000, 12_000, 16_000, 20_000]


def test_a_summary_says_whether_there_was_training_in_the_steps_that_it_tells_of(tmp_path):
    told = Told(tmp_path, "ppo", "behaviors.SoccerTwos.max_steps=8000")
    with told.report:
        for step in (4000, 8000, 12_000):
            told.add(step, 1.0, [episode(0, 1)], stats(), 3.0, None)
    assert [line.split(". ")[-1] for line in told.lines()] == ["Training.", "Training.", "Not Training."]
    gauges = json.loads(told.timers.to_json())["gauges"]
    assert gauges["SoccerTwos.IsTraining.mean"]["value"] == 0.0 == gauges["SoccerTwos.IsTraining.mean"]["min"]


def test_an_update_that_passes_several_multiples_has_a_summary_for_each_with_what_had_ended_by_then(tmp_path):
    """An update of 20480 rows and more with a summary_freq of 4000: ML-Agents writes all of these, too."""
    told = Told(tmp_path)
    told.trainee.step = 20_480
    told.record.add([episode(r, 0) for r in (1, 2, 3, 4)], stats(), 3.0, [100, 4000, 4001, 20_400])
    with told.report:
        told.report.advance(0, told.trainee.step, 1.0, 1.0, None, {})
        assert told.record.mean_reward == 3.0  # of the latest summary that had any
        told.add(24_000, 2.0, [episode(7, 0)], stats(policy_loss=0.5), 3.0, None)
    rewards = {at: told.values(at).get("Environment/Cumulative Reward") for at in range(4000, 24_001, 4000)}
    assert rewards == {4000: 1.5, 8000: 3.0, 12_000: None, 16_000: None, 20_000: None, 24_000: 5.5}
    losses = [at for at in range(4000, 24_001, 4000) if "Losses/Policy Loss" in told.values(at)]
    assert losses == [20_000, 24_000]  # an update's are known at its end
    assert all(told.values(at)["Policy/Entropy"] == 3.0 for at in range(4000, 24_001, 4000))


def test_values_are_means_since_the_last_summary(tmp_path):
    told = Told(tmp_path, "poca", "behaviors.SoccerTwos.reward_signals.extrinsic.strength=0.1")
    with told.report:
        first = [episode(1.0, 1.0, length=101), episode(0.0, -1.0, length=51)]
        told.add(2000, 1.0, first, stats(0.1, 1.0, 0.5, learning_rate=1e-3), 3.0, 1200.0)
        told.add(4000, 2.0, [episode(2.0, 0.5, length=31)], stats(0.3, 2.0, 0.7, learning_rate=5e-4), 2.0, 1201.0)
        told.add(8000, 3.0, [episode(7.0, 7.0)], stats(9.0, 9.0, 9.0), 1.0, 1202.0)
    expected = {
        "Environment/Cumulative Reward": 1.0,
        "Environment/Group Cumulative Reward": 0.5 / 3,
        "Environment/Episode Length": 60.0,  # decisions less one, as ML-Agents counts: (100 + 50 + 30) / 3
        "Environment/Cumulative Reward_hist": 3,
        "Environment/Group Cumulative Reward_hist": 3,
        "Losses/Policy Loss": 0.2,
        "Losses/Value Loss": 1.5,
        "Losses/Baseline Loss": 0.6,
        "Policy/Entropy": 2.5,
        "Policy/Extrinsic Value Estimate": 1.5,
        "Policy/Extrinsic Baseline Estimate": 1.25,
        "Policy/Extrinsic Reward": 0.1 * (1.0 + 0.5 / 3),
        "Policy/Learning Rate": 7.5e-4,
        "Policy/Epsilon": 0.2,
        "Policy/Beta": 0.005,
        "Self-play/ELO": 1201.0,
    }
    assert told.values(4000) == pytest.approx(expected, rel=1e-5)
    assert told.values(8000)["Environment/Cumulative Reward"] == 7.0
    assert told.values(8000)["Losses/Value Loss"] == 9.0
    gauges = json.loads(told.timers.to_json())["gauges"]
    assert gauges["SoccerTwos.IsTraining.mean"]["value"] == 1 and gauges["SoccerTwos.Step.mean"]["value"] == 8000


def test_what_is_called_a_maximum_is_the_largest_and_lengths_are_in_frames_where_a_learner_counts_those() -> None:
    record = PolicyRecord(splits_rewards=False, length_unit=4, strength=1.0)
    for lag, length in ((3.0, 10), (7.0, 30), (2.0, 20)):
        record.add([episode(0.0, 0.0, length)], {"Policy/Lag": lag, "Policy/Lag Max": lag}, 1.0)
    told = record.summarize()
    assert (told["Policy/Lag"], told["Policy/Lag Max"], told["Environment/Episode Length"]) == (4.0, 7.0, 80.0)


@pytest.mark.parametrize(("step", "max_steps", "share"), [(0, 2000, 0.0), (500, 2000, 0.25), (0, 0, 1.0)])
def test_whoever_has_no_steps_to_do_has_done_them_all(step, max_steps, share):
    """Lessons may wait for its progress."""
    assert Trainee.progress.fget(SimpleNamespace(step=step, behavior=SimpleNamespace(max_steps=max_steps))) == share


def test_the_settings_are_written_once_at_the_start(tmp_path):
    told = Told(tmp_path)
    with told.report:
        pass
    assert '"buffer_size": 2048' in told.values(0)["Hyperparameters/text_summary"]


def test_shares_of_points_have_a_line_and_a_tag_each(tmp_path):
    told = Told(tmp_path)
    with told.report as report:
        report.scores(5000, {})
        report.scores(5000, {"random": 0.875, "ball-chaser": 0.5})
    assert told.lines() == ["SoccerTwos. Step: 5000. Share of points: 87.5% against random, 50.0% against ball-chaser."]
    written = {tag: v for step, tag, v in read_values(told.folder.of("SoccerTwos")) if step == 5000}
    assert written == {"Baselines/random": 0.875, "Baselines/ball-chaser": 0.5}


def test_a_resumed_report_does_not_repeat_a_summary(tmp_path):
    first, second = Told(tmp_path / "a"), Told(tmp_path / "b")
    with first.report as report:
        first.add(4100, 1.0, [episode(0.5, 1.0)], stats(baseline_loss=0.3), 3.0, None)
        report.scores(4100, {"random": 0.9})
    second.report.load_state_dict(first.report.state_dict())
    with second.report:
        second.add(4200, 2.0, [], stats(baseline_loss=0.3), 3.0, None)
        second.add(8000, 3.0, [], stats(baseline_loss=0.3), 3.0, None)
    assert second.lines() == [
        "SoccerTwos. Step: 8000. Time Elapsed: 3.000 s. No episode was completed since last summary. Training."
    ]
    assert second.record.mean_reward == 0.5
    assert second.report.last_scores == {"random": 0.9}


def test_the_progress_file_says_what_tensorboard_gets(tmp_path):
    told = Told(tmp_path, "ppo")
    with told.report as report:
        told.add(4100, 12.3456, [episode(0.25, 1.0)], stats(policy_loss=float("nan")), 3.0, 1203.5)
        report.scores(4100, {"random": 0.75})
    first, summary, scores, end = (json.loads(line) for line in (tmp_path / PROGRESS).read_text().splitlines())
    assert first.pop("started") > 1.7e9
    assert first == {
        "kind": "run", "run_id": "debug", "game": "SoccerTwos", "behaviors": ["SoccerTwos"],
        "learners": [["SoccerTwos", 0, "SoccerTwos"]], "max_steps": {"SoccerTwos": 12000}, "max_minutes": 0.0,
        "env_options": {},
    }  # fmt: skip
    values = summary.pop("values")
    named = {"kind": "summary", "learner": "SoccerTwos", "policy": 0, "behavior": "SoccerTwos", "seconds": 12.346}
    assert summary == {**named, "step": 4000}
    assert (values["Self-play/ELO"], values["Losses/Policy Loss"], values["Policy/Entropy"]) == (1203.5, None, 3.0)
    assert scores == {**named, "step": 4100, "values": {"Baselines/random": 0.75}}
    assert end == {"kind": "end", "step": 4100, "seconds": 12.3456, "finished": False}


def test_a_progress_file_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path):
    (tmp_path / "run_logs").write_text("a file in the place of the folder")
    told = Told(tmp_path)
    with told.report:
        for step in (4000, 8000):
            told.add(step, 1.0, [episode(0.5, 1.0)], stats(baseline_loss=0.3), 3.0, None)
    assert " ".join(told.lines()).count(". Training goes on; the live page lacks what was not written") == 1
    assert sum("Step: " in line for line in told.lines()) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
def test_a_full_disk_costs_events_and_never_the_run(tmp_path):
    told = Told(tmp_path)
    with told.report:
        told.add(4000, 1.0, [episode(0.5, 1.0)], stats(baseline_loss=0.3), 3.0, None)
        (events,) = told.folder.of("SoccerTwos").glob("events.out.tfevents.*")
        with at_most(events.stat().st_size + 100):  # it takes a piece of the next event
            for step in range(8000, 80_000, 4000):
                told.add(step, 1.0, [episode(0.5, 1.0)], stats(baseline_loss=0.3), 3.0, None)
            assert "Step: 76000" in told.lines()[-1]
        told.add(80_000, 1.0, [episode(0.5, 1.0)], stats(baseline_loss=0.3), 3.0, None)
    steps = {step for step, tag, _ in read_values(told.folder.of("SoccerTwos")) if tag == "Losses/Policy Loss"}
    assert steps == {4000, 80_000}
    assert " ".join(told.lines()).count("TensorBoard lacks what was not written") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
def test_a_full_disk_hides_no_other_fault(tmp_path):
    told = Told(tmp_path)
    with pytest.raises(RuntimeError, match="of its own"), at_most(0), told.report:
        raise RuntimeError("of its own")
    assert not read_values(told.folder.of("SoccerTwos"))


def test_two_event_files_of_one_second_have_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("palus.run.events.time.time", lambda: 1.8e9)
    for value in (1.0, 2.0):
        EventFile(tmp_path).add(summary.scalar("tag", value), 5)
    assert read_values(tmp_path) == [(5, "tag", 1.0), (5, "tag", 2.0)]
    assert len([*tmp_path.glob("events.out.tfevents.1800000000.*")]) == 2


def test_tensorboard_finds_every_checksum_right(tmp_path):
    file = EventFile(tmp_path)
    for step in range(3):
        file.add(summary.scalar("tag", float(step)), step)
    data, records = file.path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        record, data = data[: 16 + length], data[16 + length :]
        assert struct.unpack_from("<I", record, 8)[0] == masked_crc32c(record[:8])
        assert struct.unpack_from("<I", record, 12 + length)[0] == masked_crc32c(record[12:-4])
        records.append(record[12:-4])
    assert Event.FromString(records[0]).file_version == "brain.Event:2" and len(records) == 4


def test_a_resumed_report_takes_back_what_came_after_the_checkpoint(tmp_path):
    first, second = Told(tmp_path), Told(tmp_path)
    with first.report as report:
        first.add(4100, 1.0, [], stats(baseline_loss=0.3), 3.0, None)
        state = report.state_dict()
        first.add(8200, 2.0, [], stats(baseline_loss=0.3), 3.0, None)
    second.trainee.step = 4100
    second.report.load_state_dict(state)
    with second.report:
        second.add(8300, 3.0, [], stats(baseline_loss=0.3), 3.0, None)
    lines = [json.loads(line) for line in (tmp_path / PROGRESS).read_text().splitlines()]
    assert [(line["kind"], line.get("seconds")) for line in lines] == [
        ("run", None), ("summary", 1.0), ("run", None), ("summary", 3.0), ("end", 3.0),
    ]  # fmt: skip


def test_the_bar_shows_no_markup_above_which_a_line_is_told(tmp_path):
    told = Told(tmp_path, force_terminal=True)
    told.report.console.width, told.report.last_scores = 120, {"rival [new]": 0.5}
    with told.report:
        told.report.advance(0, 1000, 1.0, 1.0, 1200.0, {})
        told.report._progress.refresh()
        told.text.seek(told.text.truncate(0))
        told.report.tell("a line")
        shown = told.text.getvalue()
    assert "SoccerTwos" in shown and "rival [new] 50%" in shown
    assert "[bold]" not in shown
