"""The entry points of the worker, the first process behind the wall.

The launcher of a wall of this machine calls `main`. A container runs this file as a script, on Python 3.4 or later, so
that a version that is too old can still be reported.
"""

import json
import os
import socket
import sys


def main(control_fd: int) -> None:
    """Serve until the host closes the control socket."""
    from coderoom_guest import forks  # type: ignore[import-not-found]

    forks.collect_hooks()
    from coderoom_guest import worker  # After `collect_hooks`, since the modules that it imports register hooks.

    worker.serve(control_fd)


def connect(control: str, workspace: str) -> None:
    """Connect to the host's socket, report the Python version and whether the workspace is writable, and serve."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(control)
    found = {"python": sys.version_info[:3], "writable": os.access(workspace, os.W_OK | os.X_OK)}
    sock.send(json.dumps(found).encode())
    # Under its own name, so that no module of the code can be mistaken for the package.
    package = sys.modules["coderoom_guest"] = type(sys)("coderoom_guest")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    # If the host does not accept what was reported, it has closed the socket, and this returns.
    main(sock.detach())


if __name__ == "__main__":
    connect(*sys.argv[1:])
