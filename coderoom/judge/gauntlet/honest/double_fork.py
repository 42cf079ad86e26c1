"""double: A child of its process does the work."""

import os


def double(n):
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.write(writer, str(2 * n).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return int(text)
