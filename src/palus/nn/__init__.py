"""Networks as pure functions of flat parameter vectors. Needs torch."""
