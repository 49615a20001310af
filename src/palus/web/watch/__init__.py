"""The live page of runs: what their folders say, and matches of what they have learned."""
