"""Turning trained weights into files that run without palus and without torch."""
