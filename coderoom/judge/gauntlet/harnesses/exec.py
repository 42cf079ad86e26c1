""": One process runs the code and the test, and ends with 0."""

import subprocess
import sys


def passes(code, test, name, timeout):
    with open("program.py", "w", encoding="utf-8") as file:
        file.write(f"{code}\n{test}\ncheck({name})\n")
    try:
        return subprocess.run([sys.executable, "program.py"], timeout=timeout, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
