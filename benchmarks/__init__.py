"""Benchmarks: the same work done by several contestants, in turn, against each other and the machine's own limit."""
