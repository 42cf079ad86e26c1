"""The languages that generated programs are written in."""
