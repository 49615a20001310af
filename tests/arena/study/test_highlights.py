"""Which matches are shown, on recordings made by hand."""

import numpy as np

from palus.arena.study import highlights
from palus.arena.study.highlights import beauty_of, best_wins, record_wins
from palus.envs.recording import RecordedEvent, Recording

BLUE_A, PURPLE_A, BLUE_B, PURPLE_B = range(4)


def kick(tick, agent):
    return RecordedEvent(tick, "kick", agent % 2, agent)


def recording(*kicks, goal=1000, scorer=0, speed=0.0, names=("mine", "theirs")):
    """A match that ends with a goal of `scorer` at tick `goal` (None: without one), the ball rolling at `speed` m/s."""
    events = [kick(tick, agent) for tick, agent in kicks]
    if goal is not None:
        events.append(RecordedEvent(goal, "goal", scorer, -1))
    frames = np.zeros((20, 14), np.float32)
    frames[:, 12] = np.arange(20) * speed * 0.02  # 50 frames per second
    score = (0, 0) if goal is None else ((1, 0), (0, 1))[scorer]
    result = "draw" if goal is None else ("blue", "purple")[scorer]
    actions = np.zeros((4, 4, 3), np.int8)
    return Recording("SoccerTwos", 0, names, frames, actions, None, tuple(events), score, result)


def test_a_match_is_shown_for_its_winner():
    goal = recording((990, PURPLE_B), scorer=1)
    assert (beauty_of(goal, "theirs"), beauty_of(goal, "mine")) == (1.0, 0.0)
    assert beauty_of(recording((990, BLUE_A), goal=None), "mine") == 0.0


def test_best_wins_come_first_and_equals_keep_their_order():
    plain, fast = recording((990, BLUE_A)), recording((990, BLUE_A), speed=10.0)
    passed, missed = recording((980, BLUE_A), (990, BLUE_B)), recording(goal=None)
    again = recording((990, BLUE_B))
    everything = [plain, missed, fast, passed, again]
    ranked = best_wins(everything, "mine", count=9)
    assert [id(r) for r in ranked] == [id(r) for r in (passed, fast, plain, again)]
    assert best_wins(everything, "mine", count=2) == ranked[:2]
    assert best_wins([missed], "mine", count=3) == []


def test_record_wins_keeps_the_best_against_each_opponent(monkeypatch):
    asked = []

    def play(player, opponent, pairs, seed, env_id, recorder):
        asked.append((player.name, opponent.name, pairs, seed, env_id))
        kicks = {"strong": [], "weak": [(980, BLUE_A), (990, BLUE_B)]}[opponent.name]
        names = ("mine", opponent.name)
        recorder.recordings[0] = recording((990, BLUE_A), names=names)
        recorder.recordings[1] = recording(*kicks, names=names)

    class Named:
        def __init__(self, name):
            self.name = name

    monkeypatch.setattr(highlights, "play_pairs", play)
    kept = record_wins(Named("mine"), [Named("strong"), Named("weak")], pairs=4, seed=7, per_opponent=1)
    assert asked == [("mine", "strong", 4, 7, "SoccerTwos"), ("mine", "weak", 4, 7, "SoccerTwos")]
    assert [(r.names[1], beauty_of(r, "mine")) for r in kept] == [("strong", 1.0), ("weak", 2.0)]


def test_the_goals_of_a_real_match_end_with_the_scorers_kick():
    from palus import envs
    from palus.arena.models.players import load_player

    spec = envs.make("SoccerTwos", 1).spec
    chaser, random = load_player("ball-chaser", spec), load_player("random", spec)
    goals = record_wins(chaser, [random], pairs=4, seed=1, per_opponent=2)
    assert 1 <= len(goals) <= 2
    for goal in goals:
        assert {"blue": goal.names[0], "purple": goal.names[1]}[goal.result] == "ball-chaser"
        assert goal.events[-1].kind == "goal"
        assert abs(goal.frames[-1, 12]) > 14.0  # the ball is at a goal line
