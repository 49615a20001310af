"""The command `palus`; `python -m palus` is the same."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while it is loaded, which takes a second, ends without a word."""
    try:
        from palus.cli import app
        from palus.terminal import bear_any_text

        bear_any_text()
        app()  # makes the command first, and ends by itself where a command of ours is interrupted
    except KeyboardInterrupt:
        sys.exit(130)  # `palus.cli.output.EXIT_INTERRUPTED`, which may not be there yet


if __name__ == "__main__":
    main()
