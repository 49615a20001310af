"""The hub's endpoints: the part of the protocol of huggingface.co that `huggingface_hub` and `hf` use."""
