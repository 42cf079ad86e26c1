"""What of skills runs behind the wall: Python 3.8, standard library only. The host only reads its source."""
