"""Which matches are shown, on recordings made by hand."""

from recorded_goals import BLUE_A, BLUE_B, PURPLE_B, recording

from palus.arena.study import highlights
from palus.arena.study.highlights import beauty_of, best_wins, record_wins


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
