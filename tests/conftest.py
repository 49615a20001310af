"""Signals as a terminal leaves them: a shell that starts the tests in the background makes them, and all processes that
they start, ignore Ctrl-C, which some tests press."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
