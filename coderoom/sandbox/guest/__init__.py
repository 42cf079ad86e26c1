"""What runs behind the wall: standard library only, Python 3.8 or later, and not a line of CodeRoom besides."""
