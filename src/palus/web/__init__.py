"""Showing matches in a browser. `assets/` holds the built viewer; the repository's folder web/ has its sources."""
