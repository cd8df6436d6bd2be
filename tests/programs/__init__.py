"""What starts programs: runs that are killed, sweeps, examples, scripts, benchmarks and a browser."""
