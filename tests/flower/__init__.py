"""Tests that need Flower: `make test-flower` runs them, and `make test` leaves them out."""
