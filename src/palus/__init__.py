"""palus: train game agents by self-play, export them, rank them, watch them."""

import os

# The OpenMP runtime reads this when it loads, so it has to be set before torch or numpy is first imported. Spinning
# barriers make a two-core update several times slower as soon as another program uses a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"


def _give_kernels_a_place() -> None:
    """Numba keeps compiled kernels beside the code, else in the user's cache, and raises where it may write to neither:
    code that another user installed, with a home that is not there. This process and those it starts get a folder of
    their own then, one that nobody else can have filled, and compile anew."""
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if os.environ.get("NUMBA_CACHE_DIR") or any(os.access(p, os.W_OK) for p in (os.path.dirname(__file__), place)):
        return
    import atexit
    import shutil
    import tempfile

    try:
        folder = tempfile.mkdtemp(prefix="palus-kernels-")
    except OSError:  # nowhere at all: Numba says so
        return
    os.environ["NUMBA_CACHE_DIR"], own = folder, os.getpid()

    def remove() -> None:
        if os.getpid() == own:  # not in a fork
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


_give_kernels_a_place()
