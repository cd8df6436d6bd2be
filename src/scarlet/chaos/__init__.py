"""A simulator of faults: whole federations, with the real server, client, codec and checkpoints, on a simulated world.

Everything is drawn from the schedule's seed, so a schedule that fails can be played again.
"""

from scarlet.chaos.judge import Violation
from scarlet.chaos.schedule import play_schedule

__all__ = ["Violation", "play_schedule"]
