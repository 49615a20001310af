"""Model files, checked before anything in them is believed, and the players that are made of them."""
