"""Model repositories: a server that the unmodified `huggingface_hub` speaks to, and pushing and pulling with it."""
