"""What a worker is asked to do, does, and says about it. Loads no database."""
