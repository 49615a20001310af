"""Ratings as pure functions of results: numbers in, numbers with their uncertainty out. Leaf package.

A history of `games.Played` becomes arrays with `games.arrange`; everything else reads those. None of it depends on the
order in which games are handed over.
"""
