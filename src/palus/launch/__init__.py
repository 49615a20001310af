"""How a run is begun from outside: cut to the time there is, over ranks whose link is measured, in a process apart."""
