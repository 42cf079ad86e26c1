"""double: Another process does the work."""

import subprocess
import sys


def double(n):
    found = subprocess.run([sys.executable, "-c", f"print(2 * {n})"], capture_output=True, text=True, check=True)
    return int(found.stdout)
