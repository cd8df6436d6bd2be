"""Trackers that people already use: each module takes the rounds of a run to one library, which it alone imports."""
