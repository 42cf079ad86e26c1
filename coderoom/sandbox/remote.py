"""The class `RemoteSandbox`: a sandbox of a server, which `coderoom sandbox serve` has started."""

from __future__ import annotations

from typing import Any, Self

from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.sandbox import Sandbox


def at_server(url: str | None) -> dict[str, Any]:
    """The arguments by which a `Sandbox` is at a server; none without a URL."""
    return {} if url is None else {"engine": "remote", "options": {"url": url}}


class RemoteSandbox(Sandbox):
    """A `Sandbox(engine="remote")`: code runs at a server, host functions run here.

    Args:
        url: The URL of the server; empty: that of the environment variable CODEROOM_URL.
        token: The token that the server knows; empty: that of CODEROOM_SERVER_TOKEN, or CODEROOM_TOKEN.
        arguments: Arguments of `Sandbox`, without `wall`, `engine`, `python`, `readable` and `options`.

    Raises:
        RequestError: An argument is wrong, or there is no URL.
    """

    def __init__(self, url: str = "", token: str = "", **arguments: Any) -> None:
        given = {"url": url, "token": token}
        super().__init__(engine="remote", options={name: each for name, each in given.items() if each}, **arguments)

    @classmethod
    def from_config(cls, config: SandboxConfig) -> Self:
        """Make a sandbox from a configuration."""
        left_out = ("authority", "wall", "engine", "options", "python", "readable", "environment")
        arguments = {name: value for name, value in config if name not in left_out}
        return cls(config.options.get("url", ""), config.options.get("token", ""), **arguments)
