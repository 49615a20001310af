"""What can be learned from matches that were played: highlights, tournaments."""
