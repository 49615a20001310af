"""What can be learned from matches that were played: highlights, statistics, tournaments, fidelity to Unity."""
