"""palus: train game agents by self-play, export them, rank them, watch them."""

import os

# The OpenMP runtime reads this when it loads, so it has to be set before torch or numpy is first imported. Spinning
# barriers make a two-core update several times slower as soon as another program uses a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
