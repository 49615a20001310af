"""A league of several runs: on this machine, each in a process of its own, or on a cluster. No learning code."""
