"""Matches between players: draws their actions, steps the game, writes down what happened and who won."""
