"""Benchmarks: the same workload run by several implementations in turn, and scripts behind the figures in docs/."""
