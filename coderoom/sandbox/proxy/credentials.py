"""Credentials that the proxy adds to requests, for the hosts that it opens TLS for. Needs `coderoom[proxy]`.

Code talks to the proxy as if it were the host, with a certificate of an authority that was made for this sandbox. The
proxy reads each request, decides, adds the header, and sends it on over TLS of its own, whose certificate it checks.
Whatever comes back is searched for the secrets, in the spellings that a server could answer with.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import functools
import html.entities
import ipaddress
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
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
_SHORTEST = 6  # Shorter secrets would be found everywhere.
_PIECE, _MOST_OF_A_LETTER = 64, 20
_LINES_OF_BASE64 = re.compile(rb"[A-Za-z0-9+/=_-]{40,}\r?\n\Z")
_MOST_INTERIM = 20
# They belong to a connection, or would let the answer come in pieces or spellings that cannot be searched.
_DROPPED = {
    *(b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *(b"accept-encoding", b"range", b"if-range", b"host", b"expect", b"transfer-encoding", b"http2-settings"),
}
# Some servers take the method or the path from there.
_OTHER_REQUEST = {
    *(b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-original-url", b"x-rewrite-url"),
    *(b"x-original-uri", b"x-forwarded-uri", b"x-forwarded-prefix", b"x-forwarded-path"),
}
_HIDDEN_STEP = re.compile(r"(?i)(^|/)\.{1,2}(/|;|$)|//|\\|;|%(2e|2f|5c|3b|25|[01][0-9a-f]|7f|u|c0|c1|ef)")


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
        if "#" in target:  # Some servers cut it off, and others do not.
            return f"the target {target[:100]!r} has a fragment"
        if not self.paths:
            return ""
        path = target.partition("?")[0]
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


class Spellings:
    """Finds secrets in bytes, in the spellings in which a server could repeat them.

    Letters and digits stay what they are in most of them. The rest of a secret may be escaped as in JSON, HTML, URLs
    and strings of programs; the whole may be in base64, in hexadecimal digits, in UTF-16, or reversed. A long secret is
    found in pieces.
    """

    longest = 2 * _PIECE * _MOST_OF_A_LETTER
    """The bytes that something which is found has at most."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # A text in lower case without which a pattern is not looked for, which is much faster, and the pattern.
        self._patterns: dict[bytes, bytes] = {}
        for secret in secrets:
            *starts, last = range(0, max(len(secret) - _PIECE, 0) + 1, _PIECE)
            for piece in (*(secret[start : start + _PIECE] for start in starts), secret[last:]):
                if len(piece) >= _SHORTEST:
                    runs = re.findall(r"[A-Za-z0-9]+", piece)
                    self._add(max(runs, key=len, default=piece).encode(), b"".join(map(_escaped, piece)))
                    for coded, gap in _coded(piece.encode()):
                        self._add(coded, gap.join(re.escape(coded[at : at + 1]) for at in range(len(coded))))

    def mask(self, data: bytes) -> bytes:
        """Replace what is found by as many asterisks."""
        lowered = data.lower()
        joined = lowered.replace(b"\r\n", b"").replace(b"\n", b"") if b"\n" in lowered else lowered
        for probe, pattern in self._patterns.items():
            if probe in joined:
                data = _compiled(pattern).sub(lambda found: b"*" * len(found[0]), data)
        return data

    def _add(self, probe: bytes, pattern: bytes) -> None:
        probe = probe.lower()
        known = self._patterns.get(probe)
        self._patterns[probe] = pattern if known is None else known + b"|" + pattern


@functools.cache
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.IGNORECASE)


def _escaped(letter: str) -> bytes:
    """A pattern for a character of a secret, as it is or escaped."""
    if letter.isalnum() and letter.isascii():
        return letter.encode()
    code = ord(letter)
    named = html.entities.codepoint2name.get(code, "apos" if letter == "'" else "")
    ways = [rf"\\{{0,2}}{re.escape(letter)}", rf"%(?:25)?{code:02x}", rf"\\{{1,2}}(?:u00|x){code:02x}"]
    ways.append(rf"&(?:amp;)?(?:#x0{{0,4}}{code:x}|#0{{0,4}}{code}{f'|{named}' if named else ''});")
    return f"(?:{'|'.join([*ways, '[+]'] if letter == ' ' else ways)})".encode()


def _coded(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """A secret as a whole in another code, and what may stand between its letters."""
    for between in ("", ":", " ", "-"):
        yield (raw.hex(between) if between else raw.hex()).encode(), b""
    for form in ("%%%02x", "%%25%02x", "\\x%02x", "\\u00%02x", "\\\\u00%02x", "&#%d;", "&#x%x;"):
        yield "".join(form % each for each in raw).encode(), b""
    yield raw[::-1], b""
    yield raw.decode().encode("utf-16-le"), b""
    yield raw.decode().encode("utf-16-be"), b""
    yield base64.b32encode(raw).rstrip(b"=")[:-1], b""
    for before in range(3):  # In base64, a text has three spellings, by its place.
        coded = base64.b64encode(b"\0" * before + raw)
        # Without the letters that its neighbours have a part in.
        inner = coded[(0, 2, 3)[before] : len(coded) - (0, 3, 2)[(before + len(raw)) % 3]]
        for spelled in {inner, inner.replace(b"+", b"-").replace(b"/", b"_"), inner.replace(b"/", b"\\/")}:
            yield spelled, rb"(?:\r?\n)?"


class Mask:
    """Masks a stream, in which what is found may be cut into pieces."""

    def __init__(self, spellings: Spellings) -> None:
        self._spellings = spellings
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take more of the stream; return what is known to be no part of a secret, and masked ones.

        The end of a line ends a secret, so that lines of a stream of events are not held back. Only long lines of
        base64 go on in the next one.
        """
        text = self._spellings.mask(self._held + data)
        whole = text.rfind(b"\n") + 1
        if whole and _LINES_OF_BASE64.search(text, max(whole - 100, 0), whole):
            whole = 0
        place = max(whole, len(text) - self._spellings.longest)
        self._held = text[place:]
        return text[:place]

    def end(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return held


class Opened:
    """The requests of one connection of code to a host with a credential."""

    def __init__(
        self,
        credential: Credential,
        spellings: Spellings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
        count: Callable[..., None],
    ) -> None:
        self._credential, self._spellings = credential, spellings
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
            is_request = self._server.their_state is h11.ERROR
            text = f"The proxy cannot read this: {error}." if is_request else "The proxy cannot read the host's answer."
            await self._say(400 if is_request else 502, text)
        except h11.LocalProtocolError:  # Its text may have the value.
            await self._say(502, "The proxy cannot pass on the host's answer.")
        finally:
            if self._onward is not None:
                self._onward[1].close()

    def _misdirected(self, request: h11.Request) -> str:
        here = self._credential
        names = {shown(here.host, here.port), *([here.host, shown(here.host, None)] if here.port == 443 else [])}
        hosts = [value.decode("latin-1").lower() for name, value in request.headers if name == b"host"]
        if any(each not in names for each in hosts):
            return f"its Host is {', '.join(hosts)!r:.100}"
        lengths = [name for name, _ in request.headers if name in (b"content-length", b"transfer-encoding")]
        if len(lengths) > 1:
            return "the end of its body is ambiguous"
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
        # Beside the answer, which may come first: because it says no, or because it repeats what comes.
        sending = asyncio.ensure_future(self._send_body(client, writer))
        try:
            return await self._receive(client, reader) and sending.done() and await sending and self._next_cycle()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_body(self, client: h11.Connection, writer: asyncio.StreamWriter) -> bool:
        """Send the body of a request on; return whether it was whole."""
        if self._server.they_are_waiting_for_100_continue:
            await self._answer(h11.InformationalResponse(status_code=100, headers=[]))
        while isinstance(event := await self._next(self._server, self._reader), h11.Data):
            await self._send(client, writer, event)
        if isinstance(event, h11.EndOfMessage):
            await self._send(client, writer, h11.EndOfMessage())
        return isinstance(event, h11.EndOfMessage)

    async def _receive(self, client: h11.Connection, reader: asyncio.StreamReader) -> bool:
        """Send the answer back, without secrets; return whether it was whole."""
        mask = Mask(self._spellings)
        for _ in range(_MOST_INTERIM):
            response = await self._next(client, reader)
            if not isinstance(response, h11.InformationalResponse):
                break
        if not isinstance(response, h11.Response):
            await self._say(502, "The host has ended the connection without an answer.")
            return False
        coded = [value for name, value in response.headers if name == b"content-encoding" and value != b"identity"]
        if coded:
            await self._say(502, "The host answers in an encoding that cannot be searched for the credential.")
            return False
        mask_of = self._spellings.mask
        kept = [each for each in response.headers if each[0] not in _DROPPED]
        headers = [each if each[0] == b"content-length" else (mask_of(each[0]), mask_of(each[1])) for each in kept]
        reason = mask_of(response.reason)
        await self._answer(h11.Response(status_code=response.status_code, headers=headers, reason=reason))
        while isinstance(event := await self._next(client, reader), h11.Data):
            await self._answer(h11.Data(mask.feed(bytes(event.data))))
        if not isinstance(event, h11.EndOfMessage):
            return False
        await self._answer(h11.Data(mask.end()))
        await self._answer(h11.EndOfMessage())
        return True

    def _next_cycle(self) -> bool:
        """Prepare for another request; return whether one may follow."""
        client = self._client
        if client is not None and client.our_state is h11.DONE and client.their_state is h11.DONE:
            client.start_next_cycle()
        elif self._onward is not None:
            self._onward[1].close()
            self._client = self._onward = None
        if self._server.our_state is not h11.DONE or self._server.their_state is not h11.DONE:
            return False
        self._server.start_next_cycle()
        return True

    def _authorized(self, request: h11.Request) -> h11.Request:
        credential = self._credential
        dropped = {*_DROPPED, credential.header.lower().encode("ascii"), *_OTHER_REQUEST}
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
            data = await reader.read(_AT_ONCE)
            if connection is not self._server:
                self._count(received=len(data))
            connection.receive_data(data)

    async def _send(self, connection: h11.Connection, writer: asyncio.StreamWriter, event: Any) -> None:
        data = connection.send(event)
        if data:
            if connection is not self._server:
                self._count(sent=len(data))
            writer.write(data)
            await writer.drain()

    async def _answer(self, event: Any) -> None:
        await self._send(self._server, self._writer, event)

    async def _say(self, status: int, text: str) -> None:
        """Answer with what the proxy has to say, if an answer has not begun."""
        if self._server.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = self._spellings.mask(text.encode("ascii", errors="replace") + b"\n")
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
        self._spellings = {place: Spellings(each.secrets) for place, each in self._found.items()}
        self._contexts = {place: authority.context_for(place[0]) for place in self._found}
        self.verifying = ssl.create_default_context()
        self.verifying.set_alpn_protocols(["http/1.1"])

    def context(self, host: str, port: int) -> ssl.SSLContext | None:
        """What opens TLS for a host; `None` if it has no credential."""
        return self._contexts.get((host, port))

    def of(self, host: str, port: int) -> tuple[Credential, Spellings]:
        """The credential of a host, and what must not come back from it."""
        return self._found[host, port], self._spellings[host, port]
