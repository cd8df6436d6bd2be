"""Self-contained HTML pages: about finished or interrupted runs (page.py), and about cache durations (cache.py)."""
