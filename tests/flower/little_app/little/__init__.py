"""An app that does next to nothing."""
