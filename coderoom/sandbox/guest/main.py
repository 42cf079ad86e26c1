"""Where the process behind the wall begins."""

from __future__ import annotations

from . import forks

__all__ = ["main"]


def main(control_fd: int) -> None:
    """Serve until the host closes the control socket.

    Args:
        control_fd: This side of the control socket. The first message on it is the configuration.
    """
    forks.collect_hooks()
    from .worker import serve  # Only now: what it imports asks for hooks.

    serve(control_fd)
