"""The hub's endpoints: the part of the protocol of huggingface.co that `huggingface_hub` and `hf` use."""

from palus.hub.server.router import make_hub_router

__all__ = ["make_hub_router"]
