"""The languages of generated programs."""
