"""Sweeps: the same run many times, with other numbers, on any number of machines, until the best numbers are known.

Optuna proposes the numbers and keeps the study; each trial is an ordinary run. `palus sweep` is the way in.
"""
