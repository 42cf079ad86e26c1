"""The entry point of the worker, the first process behind the wall. The wall's launcher calls `main`."""

from __future__ import annotations

from . import forks


def main(control_fd: int) -> None:
    """Serve until the host closes the control socket."""
    forks.collect_hooks()
    from .worker import serve  # After `collect_hooks`, since the modules that it imports register hooks.

    serve(control_fd)
