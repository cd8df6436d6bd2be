"""Datasets, their partition among clients, and their files."""
