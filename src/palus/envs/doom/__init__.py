"""Doom from pixels: Sample Factory's environments on ViZDoom's engine."""

from palus.envs.doom.game import make

__all__ = ["make"]
