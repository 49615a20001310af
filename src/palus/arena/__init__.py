"""Players, matches and leaderboards: policies from anywhere meet under one seeded referee. Imports no torch."""
