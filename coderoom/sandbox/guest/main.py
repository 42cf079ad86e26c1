"""The entry point of the worker, the first process behind the wall. The wall's launcher calls `main`."""

from __future__ import annotations

from . import forks

__all__ = ["main"]


def main(control_fd: int) -> None:
    """Serve until the host closes the control socket.

    Args:
        control_fd: This side of the control socket. The first message on it is the configuration.
    """
    forks.collect_hooks()
    from .worker import serve  # After `collect_hooks`, since the modules that it imports register hooks.

    serve(control_fd)
