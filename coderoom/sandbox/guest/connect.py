"""Connects the worker in a container to the host, over a socket in a folder that both can access.

Runs as a script, on Python 3.4 or later, so that a version that is too old can still be reported.
"""

import json
import os
import socket
import sys


def main(control: str, workspace: str) -> None:
    """Connect, report the Python version and whether the workspace is writable, and become the worker."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(control)
    found = {"python": sys.version_info[:3], "writable": os.access(workspace, os.W_OK | os.X_OK)}
    sock.send(json.dumps(found).encode())
    # Under its own name, so that no module of the code can be mistaken for the package.
    package = sys.modules["coderoom_guest"] = type(sys)("coderoom_guest")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    from coderoom_guest import main as worker  # type: ignore[import-not-found]

    # If the host does not accept what was reported, it has closed the socket, and this returns.
    worker.main(sock.detach())


if __name__ == "__main__":
    main(*sys.argv[1:])
