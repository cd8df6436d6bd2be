"""HTML pages from the records of runs: about one or some of them (page.py), and about a sweep (index.py)."""
