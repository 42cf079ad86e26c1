"""Connects the worker of a container to its host, over a socket in a folder that both see.

Runs as a script, on any Python 3.4 or later, so that one that is too old can still say so.
"""

import json
import os
import socket
import sys

__all__ = ["main"]


def main(control: str, workspace: str) -> None:
    """Connect, say what there is here, and be the worker.

    Args:
        control: The path of the host's socket.
        workspace: The folder that code must be able to write to.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(control)
    found = {"python": sys.version_info[:3], "writable": os.access(workspace, os.W_OK | os.X_OK)}
    sock.send(json.dumps(found).encode())
    # The package gets a name of its own, so that no module of the code's can be taken for it.
    package = sys.modules["coderoom_guest"] = type(sys)("coderoom_guest")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    from coderoom_guest import main as worker  # type: ignore[import-not-found]

    # A host that found something wanting has closed its end.
    worker.main(sock.detach())


if __name__ == "__main__":
    main(*sys.argv[1:])
