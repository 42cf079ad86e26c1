"""What interprets cells."""
