"""What JavaScript needs on this side of the wall, and in `node` what it needs on the other."""
