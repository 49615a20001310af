"""The arena's memory and will: who takes part, what is played next, the log of it, and what follows from the log."""
