"""Credentials that the proxy adds to requests, for the hosts that it opens TLS for. Needs `coderoom[proxy]`.

Code talks to the proxy as if it were the host, with a certificate of an authority that was made for this sandbox. The
proxy reads each request, decides, adds the header, and sends it on over TLS of its own, whose certificate it checks.
Whatever comes back is searched for the secrets, in the spellings that a server could answer with.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import os
import re
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

import h11
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .rules import address_of, normal_host, shown
from .wire import LONGEST_HEAD

_AT_ONCE = 1 << 16
_VALID = datetime.timedelta(days=365)
_SHORTEST = 4  # Shorter secrets, and pieces of encoded ones, would be found everywhere.
# They belong to a connection, or would let the answer come in pieces or spellings that cannot be searched.
_DROPPED = {
    *(b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *(b"accept-encoding", b"range", b"if-range", b"host", b"expect", b"transfer-encoding", b"http2-settings"),
}
_OTHER_METHOD = {b"x-http-method-override", b"x-http-method", b"x-method-override"}
_HIDDEN_STEP = re.compile(r"(?i)(^|/)\.{1,2}(/|;|$)|//|\\|;|%(2e|2f|5c|3b|25|00)")


class Credential(NamedTuple):
    """What is added to the requests to a host.

    Attributes:
        header: The name of the header.
        value: Its value.
        secrets: What must not come back.
        methods: The methods that are let through; empty: all but TRACE.
        paths: The beginnings of paths that are let through, by whole segments; empty: all.
    """

    host: str
    port: int
    header: str
    value: str
    secrets: list[str]
    methods: list[str]
    paths: list[str]

    def objection(self, method: str, target: str) -> str:
        """Why a request is not let through; empty if it is."""
        if method == "TRACE" or (self.methods and method not in self.methods):
            return f"{method} is not among the methods of its credential: {', '.join(self.methods) or 'all but TRACE'}"
        if not self.paths:
            return ""
        path = target.partition("?")[0].partition("#")[0]
        if _HIDDEN_STEP.search(path):
            return f"the path {path[:100]!r} could be read as another one"
        if any(path == each or path.startswith(each.rstrip("/") + "/") for each in self.paths):
            return ""
        return f"the path {path[:100]!r} is not below those of its credential: {', '.join(self.paths)}"


class Authority:
    """An authority for certificates; `key` is that of an earlier process, whose certificate the code trusts."""

    def __init__(self, key: str = "") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        if key:
            found = serialization.load_pem_private_key(key.encode("ascii"), None)
            assert isinstance(found, ec.EllipticCurvePrivateKey)
            self._key = found
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CodeRoom sandbox")])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())
        self.key = _private(self._key).decode("ascii")
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def context_for(self, host: str) -> ssl.SSLContext:
        """What a server of this host needs for TLS; clients may ask for no other host."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = address_of(host)
        name = x509.DNSName(host) if address is None else x509.IPAddress(ipaddress.ip_address(str(address)))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = self._builder(x509.Name([]), key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        certificate = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])

        def check(_: object, asked: str | None, __: object) -> int | None:
            is_this = asked is None or normal_host(asked) == host
            return None if is_this else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        context.sni_callback = check
        fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(fd, _private(key) + certificate.public_bytes(serialization.Encoding.PEM))
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        return builder.not_valid_before(now - _VALID).not_valid_after(now + _VALID)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Mask:
    """Replaces secrets in a stream by as many asterisks, also those that are cut into pieces."""

    def __init__(self, secrets: list[str]) -> None:
        found = {each for secret in secrets for each in _spellings(secret) if len(each) >= _SHORTEST}
        self._spellings = sorted((each.lower() for each in found), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._spellings)) or b"(?!)", re.IGNORECASE)
        self._beginnings = {each[:size] for each in self._spellings for size in range(1, len(each))}
        self._most = max(map(len, self._beginnings), default=0)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take more of the stream; return what is known to be no part of a secret, and masked ones."""
        text = self.whole(self._held + data)
        end = text[max(len(text) - self._most, 0) :].lower()
        held = next((len(end) - at for at in range(len(end)) if end[at:] in self._beginnings), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return held

    def whole(self, data: bytes) -> bytes:
        """Mask a text that is no part of the stream."""
        lowered = data.lower()
        if not any(each in lowered for each in self._spellings):  # Much faster than the pattern.
            return data
        return self._pattern.sub(lambda found: b"*" * len(found[0]), data)


def _spellings(secret: str) -> Iterator[bytes]:
    """A secret as a server could repeat it."""
    raw = secret.encode()
    yield raw
    yield urllib.parse.quote(secret).encode()
    yield urllib.parse.quote(secret, safe="").encode()
    yield urllib.parse.quote_plus(secret).encode()
    yield json.dumps(secret)[1:-1].encode()
    yield secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").encode()
    yield raw.hex().encode()
    yield raw[::-1]
    for before in range(3):  # In base64, a text has three spellings, by its place.
        coded = base64.b64encode(b"\0" * before + raw)
        # Without the letters that its neighbours have a part in.
        inner = coded[(0, 2, 3)[before] : len(coded) - (0, 3, 2)[(before + len(raw)) % 3]]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")


class Opened:
    """The requests of one connection of code to a host with a credential."""

    def __init__(
        self,
        credential: Credential,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
        count: Callable[..., None],
    ) -> None:
        self._credential = credential
        self._reader, self._writer = reader, writer
        self._connect, self._count = connect, count
        self._server = h11.Connection(h11.SERVER, LONGEST_HEAD)
        self._client: h11.Connection | None = None
        self._onward: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def serve(self, refuse: Callable[[str, int], Exception]) -> None:
        """Serve until one side ends."""
        try:
            while isinstance(request := await self._next(self._server, self._reader), h11.Request):
                target = request.target.decode("latin-1")
                why = self._credential.objection(request.method.decode("ascii"), target) or self._misdirected(request)
                if why:
                    text = f"A request to {self._credential.host}: {why}."
                    refuse(text, 403)
                    await self._say(403, text)
                    return
                if not await self._exchange(request):
                    return
        except h11.RemoteProtocolError as error:
            await self._say(400, f"The proxy cannot read this: {error}.")
        finally:
            if self._onward is not None:
                self._onward[1].close()

    def _misdirected(self, request: h11.Request) -> str:
        here = self._credential
        names = {shown(here.host, here.port), *([here.host, shown(here.host, None)] if here.port == 443 else [])}
        hosts = [value.decode("latin-1").lower() for name, value in request.headers if name == b"host"]
        if any(each not in names for each in hosts):
            return f"its Host is {', '.join(hosts)!r:.100}"
        return "" if request.target[:1] == b"/" or request.target == b"*" else "it does not ask for a path"

    async def _exchange(self, request: h11.Request) -> bool:
        """Send a request on, and its answer back; return whether another one may follow."""
        try:
            if self._client is None or self._onward is None or self._onward[0].at_eof():
                self._onward, self._client = await self._connect(), h11.Connection(h11.CLIENT, LONGEST_HEAD)
        except Exception as error:
            await self._say(getattr(error, "status", 502), str(error))
            return False
        client, (reader, writer) = self._client, self._onward
        await self._send(client, writer, self._authorized(request))
        if self._server.they_are_waiting_for_100_continue:
            await self._answer(h11.InformationalResponse(status_code=100, headers=[]))
        while not isinstance(event := await self._next(self._server, self._reader), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return False
            self._count(sent=len(event.data))
            await self._send(client, writer, event)
        await self._send(client, writer, h11.EndOfMessage())
        mask = Mask(self._credential.secrets)
        while isinstance(response := await self._next(client, reader), h11.InformationalResponse):
            pass
        if not isinstance(response, h11.Response):
            await self._say(502, "The host has ended the connection without an answer.")
            return False
        coded = [value for name, value in response.headers if name == b"content-encoding" and value != b"identity"]
        if coded:
            await self._say(502, "The host answers in an encoding that cannot be searched for the credential.")
            return False
        headers = [(mask.whole(name), mask.whole(value)) for name, value in response.headers if name not in _DROPPED]
        reason = mask.whole(response.reason)
        await self._answer(h11.Response(status_code=response.status_code, headers=headers, reason=reason))
        while isinstance(event := await self._next(client, reader), h11.Data):
            self._count(received=len(event.data))
            await self._answer(h11.Data(mask.feed(bytes(event.data))))
        if not isinstance(event, h11.EndOfMessage):
            return False
        await self._answer(h11.Data(mask.end()))
        await self._answer(h11.EndOfMessage())
        if h11.MUST_CLOSE in (client.our_state, client.their_state):
            writer.close()
            self._client = self._onward = None
        else:
            client.start_next_cycle()
        if self._server.our_state is not h11.DONE or self._server.their_state is not h11.DONE:
            return False
        self._server.start_next_cycle()
        return True

    def _authorized(self, request: h11.Request) -> h11.Request:
        credential = self._credential
        dropped = {*_DROPPED, credential.header.lower().encode("ascii"), *(_OTHER_METHOD if credential.methods else ())}
        chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
        headers = [each for each in request.headers if each[0] not in dropped]
        port = None if credential.port == 443 else credential.port
        headers = [(b"host", shown(credential.host, port).encode("ascii")), *headers]
        headers += [(b"accept-encoding", b"identity"), (credential.header.encode("ascii"), credential.value.encode())]
        headers += [(b"transfer-encoding", b"chunked")] * chunked
        return h11.Request(method=request.method, target=request.target, headers=headers)

    async def _next(self, connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
        while True:
            event = connection.next_event()
            if event is not h11.NEED_DATA:
                return event
            connection.receive_data(await reader.read(_AT_ONCE))

    async def _send(self, connection: h11.Connection, writer: asyncio.StreamWriter, event: Any) -> None:
        data = connection.send(event)
        if data:
            writer.write(data)
            await writer.drain()

    async def _answer(self, event: Any) -> None:
        await self._send(self._server, self._writer, event)

    async def _say(self, status: int, text: str) -> None:
        """Answer with what the proxy has to say, if an answer has not begun."""
        if self._server.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = Mask(self._credential.secrets).whole(text.encode("ascii", errors="replace") + b"\n")
        headers = [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        await self._answer(h11.Response(status_code=status, headers=[(b"content-type", b"text/plain"), *headers]))
        await self._answer(h11.Data(body))
        await self._answer(h11.EndOfMessage())


class Credentials:
    """The credentials of a sandbox by host and port, and their authority."""

    def __init__(self, listed: list[Mapping[str, Any]], key: str) -> None:
        self._found = {(each["host"], each["port"]): Credential(**each) for each in listed}
        authority = Authority(key)
        self.authority = {"certificate": authority.pem, "key": authority.key}
        self._contexts = {place: authority.context_for(place[0]) for place in self._found}
        self.verifying = ssl.create_default_context()
        self.verifying.set_alpn_protocols(["http/1.1"])

    def context(self, host: str, port: int) -> ssl.SSLContext | None:
        """What opens TLS for a host; `None` if it has no credential."""
        return self._contexts.get((host, port))

    def of(self, host: str, port: int) -> Credential:
        """The credential of a host."""
        return self._found[host, port]
