"""Decides whether a stranger's model may play: `vet.vet`, with a `refusal.Refusal` that says why not and what to do."""
