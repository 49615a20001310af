"""Collecting experience: environments in, `Rollout` out."""
