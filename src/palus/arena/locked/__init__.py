"""Vets strangers' models and plays matches between them: the referee here, every model in a locked process of its own.

`vet.vet` decides whether a model may play; `play.play_unit` plays one mirrored pair of a `unit.Unit`.
"""
