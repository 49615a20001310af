"""ML-Agents' protocol between a game and its trainer (communicator 1.5.0), either side of it."""
