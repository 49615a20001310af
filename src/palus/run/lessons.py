"""Curricula: which lesson every environment parameter is in, and when the next one begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from palus.config import RunFile
from palus.config.environment import CompletionCriteria, Lesson, Value, text_of

NEW_SHARE = 0.75
"""Of a smoothed measure, the share of the mean of now."""


class Lessons:
    """The lesson of every parameter; a plain value is the only lesson there is.

    numbers: parameter -> lesson, from 0. resets: whether a lesson that ended last asks for all matches anew.
    """

    def __init__(self, run: RunFile) -> None:
        self._lessons = run.lessons()
        self.numbers = dict.fromkeys(self._lessons, 0)
        self.resets = False
        self._smoothed = dict.fromkeys(self._lessons, 0.0)
        self._rewards: dict[str, deque[float]] = {
            name: deque(maxlen=max([1, *(c.min_lesson_length for c in self._criteria(name))])) for name in run.behaviors
        }

    def _criteria(self, behavior: str) -> list[CompletionCriteria]:
        """All that look at a behavior."""
        every = (lesson.completion_criteria for lessons in self._lessons.values() for lesson in lessons)
        return [criteria for criteria in every if criteria is not None and criteria.behavior == behavior]

    def _current(self, name: str) -> Lesson:
        return self._lessons[name][self.numbers[name]]

    @property
    def values(self) -> dict[str, Value]:
        """Parameter -> its value in this lesson."""
        return {name: self._current(name).value for name in self._lessons}

    def lines(self, names: Iterable[str]) -> list[str]:
        """ML-Agents' console line of each of these parameters."""
        lessons = {name: self._current(name) for name in names}
        return [
            f"Parameter '{name}' is in lesson '{lesson.name}' and has value '{text_of(lesson.value)}'."
            for name, lesson in lessons.items()
        ]

    def advance(self, progress: Mapping[str, float], ended: Iterable[tuple[str, float]]) -> list[str]:
        """Test after every episode, and once more; returns the parameters that are in another lesson now.

        progress: behavior -> trainer step / max_steps; what has not appeared has done nothing. ended: behavior and
        return of episodes in order; those after a change were played in the lesson that is over and do not count.
        """
        changed, self.resets = list[str](), False
        for behavior, reward in ended:
            self._rewards[behavior].append(reward)
            changed = self._test(progress)
            if changed:
                break
        while more := self._test(progress):  # by progress, several lessons may be over at once
            changed += more
        return list(dict.fromkeys(changed))

    def _test(self, progress: Mapping[str, float]) -> list[str]:
        """One test of every parameter; a change of any empties all buffers."""
        learned = [name for name in self._lessons if self._is_learned(name, progress)]
        for name in learned:
            criteria = self._current(name).completion_criteria
            self.resets |= criteria is not None and criteria.require_reset
            self.numbers[name] += 1
        if learned:
            for rewards in self._rewards.values():
                rewards.clear()
        return learned

    def _is_learned(self, name: str, progress: Mapping[str, float]) -> bool:
        criteria = self._current(name).completion_criteria
        if criteria is None or self.numbers[name] + 1 == len(self._lessons[name]):
            return False
        rewards = self._rewards.get(criteria.behavior)
        if rewards is None or len(rewards) < criteria.min_lesson_length:
            return False
        if criteria.measure == "progress":
            return progress.get(criteria.behavior, 0.0) > criteria.threshold
        if not rewards:
            return False
        measure = sum(rewards) / len(rewards)
        if criteria.signal_smoothing:
            measure = self._smoothed[name] = (1 - NEW_SHARE) * self._smoothed[name] + NEW_SHARE * measure
        return measure > criteria.threshold

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next test depends on."""
        rewards = {behavior: list(own) for behavior, own in self._rewards.items()}
        return {"numbers": dict(self.numbers), "smoothed": dict(self._smoothed), "rewards": rewards}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; parameters that are new begin with their first lesson."""
        for name in self._lessons.keys() & state["numbers"].keys():
            self.numbers[name] = min(int(state["numbers"][name]), len(self._lessons[name]) - 1)
            self._smoothed[name] = float(state["smoothed"].get(name, 0.0))
        for behavior, own in self._rewards.items():
            own.extend(state["rewards"].get(behavior, []))
