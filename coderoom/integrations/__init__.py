"""Doors to the sandbox and the teams for programs that do not use AutoGen. Each is one file, and needs its extra."""
