"""The command `palus`; `python -m palus` is the same."""

import atexit
import gc
import sys

YOUNG_OBJECTS = 5_000
"""New containers between two looks for garbage. What is imported stays: to look after every 700 of them, and through
all of them at the end, costs time at every start."""


def main() -> None:
    """Run the command line. Ctrl-C while it is loaded, which takes a second, ends without a word."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(freeze)
    try:
        from palus.cli import app
        from palus.terminal import bear_any_text

        bear_any_text()
        app()  # makes the command first, and ends by itself where a command of ours is interrupted
    except KeyboardInterrupt:
        sys.exit(130)  # `palus.cli.output.EXIT_INTERRUPTED`, which may not be there yet


def freeze() -> None:
    """Let the end of the process pass over what is there. duckdb would tell of all its objects as leaks then."""
    if "duckdb" not in sys.modules:
        gc.freeze()


if __name__ == "__main__":
    main()
