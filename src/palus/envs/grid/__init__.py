"""Two small games on a board of squares, as numpy arrays: unequal teams (`pursuit`), three teams (`foraging`)."""
