"""The host's side of the proxy: starts its process, hands it the sockets of rooms, and asks what was used."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from coderoom._util.distribution import install_command
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.config import Credential, SandboxConfig
from coderoom.sandbox.proxy.rules import AUTHORITY, PROXY_PORT, AllowList, Rule, parse_rule
from coderoom.sandbox.result import NetworkUse
from coderoom.sandbox.walls.layout import AUTHORITIES

_PATIENCE: Final = 20.0
_LARGEST_PACKET: Final = 1 << 17
_MOST_PORTS: Final = 48
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
# What programs read the file of the authorities from that they trust.
_TRUSTING: Final = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE"),
    *("CARGO_HTTP_CAINFO", "npm_config_cafile"),
)
_numbers = itertools.count(1)
_HERE: Final = Path(__file__).resolve().parent
# Under a name of its own, so that the package `coderoom` with all that it imports is not needed.
_PROGRAM: Final = """
import sys
sys.modules["coderoom_proxy"] = type(sys)("coderoom_proxy")
sys.modules["coderoom_proxy"].__path__ = [sys.argv[1]]
from coderoom_proxy.server import main
main(int(sys.argv[2]))
"""


def environment_for(config: SandboxConfig) -> dict[str, str]:
    """What programs behind the wall need to find the proxy."""
    rules = AllowList(map(parse_rule, config.allowed_hosts))
    own = [each for each in ("localhost", "127.0.0.1", "::1") if not rules.allows(each, None)]
    address = f"http://127.0.0.1:{PROXY_PORT}"
    found = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": ",".join(own)}
    found |= {name.lower(): value for name, value in found.items()}
    if config.credentials:
        found |= {**dict.fromkeys(_TRUSTING, AUTHORITIES), "NODE_EXTRA_CA_CERTS": AUTHORITY}
    return {**found, "NODE_USE_ENV_PROXY": "1"}


def ports_for(config: SandboxConfig) -> list[int]:
    """The proxy's port, and those at which code finds hosts without asking it: of the web, and of the list."""
    ports = AllowList(map(parse_rule, (*config.allowed_hosts, *config.credentials))).ports
    return list(dict.fromkeys([PROXY_PORT, 80, 443, *ports]))[:_MOST_PORTS]


class Proxy:
    """The process of the proxy of one sandbox. If it dies, another one takes its place, with the same sockets."""

    def __init__(self, config: SandboxConfig) -> None:
        self.authority = ""
        listed = [_told(parse_rule(host), credential) for host, credential in config.credentials.items()]
        if len({(each["host"], each["port"]) for each in listed}) < len(listed):
            raise RequestError("credentials: two of them are for the same host and port.")
        self._message = {
            "rules": [*map(parse_rule, config.allowed_hosts), *((each["host"], each["port"]) for each in listed)],
            "connect_seconds": config.limits.connect_seconds,
            "network_bytes": config.limits.network_bytes,
            "credentials": listed,
            "path": _places_of_packages() if listed else [],
            "key": "",
        }
        if len(json.dumps(self._message)) > _LARGEST_PACKET:
            raise RequestError(f"network: the list and the credentials have more than {_LARGEST_PACKET} bytes.")
        self._rooms: dict[int, RoomNetwork] = {}
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._restarting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process.

        Raises:
            SandboxUnavailable: It did not start.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a millisecond
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_HERE), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.setblocking(False)
        # For a sandbox that is never closed: the process ends with the socket.
        weakref.finalize(self, ours.close)
        try:
            await self._loop.sock_sendall(ours, json.dumps(self._message).encode())
            async with asyncio.timeout(_PATIENCE):
                answer = await self._loop.sock_recv(ours, _LARGEST_PACKET)
            if not answer:
                raise ConnectionError("it has ended")
        except OSError as error:
            ours.close()
            self.close()
            raise SandboxUnavailable(f"The proxy for the sandbox's network did not start: {error}.") from error
        authority = json.loads(answer)["authority"]
        if authority is not None:
            self.authority = authority["certificate"]
            self._message["key"] = authority["key"]  # For the next process, whose certificates the code has to trust.
        self._control = ours
        self._loop.add_reader(ours, self._take)
        for number, room in self._rooms.items():
            self.tell({"op": "room", "id": number}, room.sockets)
            if not room.has_session:  # What an ended one has left waits at the sockets.
                room.cut()

    def add(self, sockets: Sequence[int]) -> RoomNetwork:
        """Serve the listening sockets of a room, which belong to the result from now on."""
        number = next(_numbers)
        room = self._rooms[number] = RoomNetwork(self, number, sockets)
        self.tell({"op": "room", "id": number}, sockets)
        return room

    def tell(self, message: Mapping[str, Any], sockets: Sequence[int] = ()) -> bool:
        """Send a message; return whether that was possible."""
        try:
            self._send(message, sockets)
        except OSError:  # It has died, and the next one is told all that it needs.
            return False
        return True

    async def restarted(self) -> None:
        """Wait until the process runs again, if it has died."""
        if self._restarting is not None:
            await asyncio.wait((self._restarting,))

    def kill(self) -> None:
        """End the process, so that another one takes its place."""
        if self._process is not None:
            self._process.kill()

    def forget(self, number: int) -> None:
        """Stop serving a room."""
        if self._rooms.pop(number, None) is not None:
            self.tell({"op": "end", "id": number})

    def close(self) -> None:
        """End the process; a second call does nothing."""
        self._closed = True
        self._disconnect()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _send(self, message: Mapping[str, Any], sockets: Sequence[int] = ()) -> None:
        if self._control is None:
            raise ConnectionError("it has ended")
        socket.send_fds(self._control, [json.dumps(message).encode()], sockets)

    def _take(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(_LARGEST_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            message = json.loads(data)
            room = self._rooms.get(message["id"])
            if room is not None:
                room.answered(message)
            return
        self._disconnect()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for room in self._rooms.values():
            room.answered({})
        self._restarting = self._loop.create_task(self._restart())

    async def _restart(self) -> None:
        with contextlib.suppress(SandboxUnavailable):  # Then connections go unanswered.
            await self.start()

    def _disconnect(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            with contextlib.suppress(RuntimeError):  # The event loop is closed already.
                self._loop.remove_reader(control)
            control.close()


class RoomNetwork:
    """The network of a room: the sockets at which the proxy serves it."""

    def __init__(self, proxy: Proxy, number: int, sockets: Sequence[int]) -> None:
        self._proxy = proxy
        self._number = number
        self.sockets = sockets
        self.has_session = False
        self.outlives_room = False  # Other rooms get it then.
        self._answers: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._close_sockets = weakref.finalize(self, _close_all, sockets)

    async def begin(self) -> None:
        """Begin a session: what an earlier one has left is cut off, and also what waits for a proxy that has died."""
        self.has_session = True
        await self._proxy.restarted()
        await self._ask("begin")

    def cut(self) -> None:
        """Cut off what a session has left."""
        self.has_session = False
        self._proxy.tell({"op": "begin", "id": self._number, "asked": 0})

    async def used(self) -> tuple[NetworkUse, ...]:
        """What was let through and refused since the last call."""
        message = await self._ask("report")
        uses = [NetworkUse(**use) for use in message.get("uses", ())]
        if message.get("left_out"):
            uses.append(NetworkUse("", None, f"{message['left_out']} more are not listed."))
        return tuple(uses)

    async def _ask(self, op: str) -> Mapping[str, Any]:
        asked, answer = next(_numbers), asyncio.get_running_loop().create_future()
        self._answers[asked] = answer
        try:
            if not self._proxy.tell({"op": op, "id": self._number, "asked": asked}):
                return {}
            async with asyncio.timeout(_PATIENCE):
                found: Mapping[str, Any] = await answer
                return found
        except TimeoutError:  # It is stuck: it is replaced, as one that has died.
            self._proxy.kill()
            return {}
        finally:
            del self._answers[asked]

    def answered(self, message: Mapping[str, Any]) -> None:
        """Take an answer; without a number it is that of a proxy that has died, to all questions."""
        for asked, answer in self._answers.items():
            if message.get("asked", asked) == asked and not answer.done():
                answer.set_result(message)

    def close(self) -> None:
        """Stop serving the room."""
        if self.outlives_room:
            self.cut()
            return
        self._proxy.forget(self._number)
        self._close_sockets()


def _told(rule: Rule, credential: Credential) -> dict[str, Any]:
    """What the proxy is told of a credential, with the values of its variables."""
    secrets = []

    def value_of(found: re.Match[str]) -> str:
        value = os.environ.get(found[1], "").strip()  # Files and services of keys often end them with a line.
        if not value:
            raise RequestError(f"credentials: {rule.host}: the environment variable {found[1]!r} is not set.")
        secrets.append(value)
        return value

    value = _VARIABLE.sub(value_of, credential.value.get_secret_value())
    if not value.isprintable() or not value.isascii() or value != value.strip() or not value:
        raise RequestError(f"credentials: {rule.host}: its value is empty, or has what a header cannot have.")
    # Without `Bearer` and the like, which is no secret.
    secrets.append(value.partition(" ")[2] or value)
    if value.lower().startswith("basic "):
        with contextlib.suppress(ValueError):
            user_and_password = base64.b64decode(value[6:]).decode()
            secrets += [user_and_password, user_and_password.partition(":")[2]]
    secrets = [each for each in dict.fromkeys(secrets) if each]
    told = {"host": rule.host, "port": rule.port or 443, "header": credential.header, "value": value}
    return {**told, "secrets": secrets, "methods": credential.methods, "paths": credential.paths}


def _places_of_packages() -> list[str]:
    """Where the packages are that the proxy needs for credentials."""
    places = []
    for name in ("cryptography", "h11", "cffi"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            places.append(str(Path(spec.origin).parent.parent))
        elif name != "cffi":
            raise MissingDependencyError(f"Credentials need the package {name!r}: {install_command('proxy')}")
    return list(dict.fromkeys(places))


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
