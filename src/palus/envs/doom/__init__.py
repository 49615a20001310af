"""Doom from pixels: Sample Factory's environments on ViZDoom's engine; `game.make` makes them."""
