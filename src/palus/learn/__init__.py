"""Learners: one file per algorithm, maths as pure functions. Needs torch."""
