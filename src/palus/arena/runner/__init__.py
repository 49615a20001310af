"""Plays matches between strangers' models: the referee here, every model in a locked process of its own.

`play.play_unit` plays one mirrored pair of a `unit.Unit`; `actions.replay_actions` plays it again from its action log.
"""
