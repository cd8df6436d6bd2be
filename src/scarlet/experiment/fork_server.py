"""What the fork server of a sweep loads: all that a run needs. SIGINT is blocked until then."""

import signal

import scarlet.experiment.run  # noqa: F401

_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which drops a Ctrl-C that came meanwhile
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.signal(signal.SIGINT, _handler)
