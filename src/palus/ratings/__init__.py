"""Ratings as pure functions of results: numbers in, numbers with their uncertainty out. Leaf package, numpy only."""
