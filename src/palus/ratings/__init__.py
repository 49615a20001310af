"""Ratings as pure functions of results: numbers in, numbers with their uncertainty out. Leaf package.

Online ratings replay a history of `games.Played`; everything else reads arrays: `games.Games`, or how often whom met
with which outcome (`sums.Sums`), which no order of the games changes.
"""
