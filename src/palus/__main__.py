"""`python -m palus` is the same as `palus`."""

from palus.cli import app

if __name__ == "__main__":
    app()
