"""What the proxy reads from bytes that hostile code has written: requests of HTTP, hellos of TLS, queries of DNS.

Standard library only. Anything that two readers could understand differently is an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

LONGEST_HEAD = 65_536
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]{1,60000}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0]*)")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})(?:;[\t -~]*)?\r\n")
_BLANKS = b"\r\n\t\v\f "
# The first word of a line, or its beginning.
_METHOD = re.compile(rb"[A-Za-z][A-Za-z_-]{0,31}(?:[\r\n\t\v\f ]|\Z)")
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
_LONGEST_HELLO, _MOST_RECORDS = 32_768, 8
_A, _AAAA, _INTERNET = 1, 28, 1


class MalformedError(Exception):
    """The bytes are not what they should be."""


class Head(NamedTuple):
    """The head of a request of HTTP/1.

    Attributes:
        headers: Names in lower case, and values.
    """

    method: str
    target: str
    minor: int
    headers: Sequence[tuple[str, str]]

    def all_of(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for each, value in self.headers if each == name]

    @property
    def body(self) -> int | None:
        """How many bytes the body has; `None`: it comes in chunks.

        Raises:
            MalformedError: Two readers could find different ends.
        """
        lengths, codings = self.all_of("content-length"), self.all_of("transfer-encoding")
        if codings:
            if lengths or self.minor == 0 or [each.lower() for each in codings] != ["chunked"]:
                raise MalformedError("the end of the request's body is ambiguous")
            return None
        if not lengths:
            return 0
        if len(lengths) > 1 or not re.fullmatch(r"[0-9]{1,15}", lengths[0]):
            raise MalformedError("the request's Content-Length is ambiguous")
        return int(lengths[0])

    def encode(self) -> bytes:
        """The head as bytes."""
        lines = [
            f"{self.method} {self.target} HTTP/1.{self.minor}",
            *(f"{name}: {text}" for name, text in self.headers),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def parse_header(line: bytes) -> tuple[str, str]:
    """Read a header: its name in lower case, and its value."""
    header = _HEADER.fullmatch(line)
    if header is None:
        raise MalformedError("a header of the request is malformed")
    return header[1].decode("ascii").lower(), header[2].strip(b" \t").decode("latin-1")


def parse_head(data: bytes) -> Head:
    """Read the head of a request, with the empty line at its end."""
    first, *lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        raise MalformedError("this is not a request of HTTP/1")
    headers = []
    for line in lines:
        headers.append(parse_header(line))
    return Head(request[1].decode("ascii"), request[2].decode("ascii"), int(request[3]), headers)


def looks_like_http(data: bytes) -> bool | None:
    """Whether a server could read a request of HTTP/1 at the beginning; `None`: it takes more bytes to know.

    Some servers skip what is in front of a request, or take other blanks; `parse_head` does not.
    """
    text = data.lstrip(_BLANKS)
    if text and not _METHOD.match(text):
        return False
    line, end, _ = text.partition(b"\n")
    if not end:
        return True if len(data) >= LONGEST_HEAD else None
    return b"http/" in line.lower() and not line.startswith(b"PRI * HTTP/2.0")


def chunk_size(line: bytes) -> int:
    """The size that the first line of a chunk names."""
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise MalformedError("a chunk of the request's body is malformed")
    return int(found[1], 16)


def server_name(data: bytes) -> str | None:
    """The name of the host in the first message of a TLS client; empty if it names none, `None` if it is not whole.

    See RFC 8446, section 4.1.2, and RFC 6066, section 3.
    """
    hello = bytearray()
    place = records = 0
    while len(hello) < 4 or len(hello) < 4 + int.from_bytes(hello[1:4], "big"):
        records += 1
        if len(hello) > _LONGEST_HELLO or records > _MOST_RECORDS:
            raise MalformedError("the client's hello is too long")
        if len(data) < place + 5:
            return None
        kind, major, _, size = struct.unpack_from(">BBBH", data, place)
        if kind != _HANDSHAKE or major != 3 or not 0 < size <= 1 << 14:
            raise MalformedError("this is not the beginning of TLS")
        if len(data) < place + 5 + size:
            return None
        hello += data[place + 5 : place + 5 + size]
        place += 5 + size
        if hello[0] != _CLIENT_HELLO:
            raise MalformedError("this is not a client's hello")
    try:
        return _name_in(bytes(hello[4 : 4 + int.from_bytes(hello[1:4], "big")]))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedError("the client's hello is malformed") from error


def _name_in(hello: bytes) -> str:
    place = 2 + 32
    place += 1 + hello[place]  # The session.
    place += 2 + struct.unpack_from(">H", hello, place)[0]  # Ciphers.
    place += 1 + hello[place]  # Compressions.
    if place == len(hello):
        return ""
    end = place + 2 + struct.unpack_from(">H", hello, place)[0]
    place += 2
    names = []
    while place < end:
        kind, size = struct.unpack_from(">HH", hello, place)
        content = hello[place + 4 : place + 4 + size]
        if len(content) != size:
            raise IndexError
        if kind == _SERVER_NAME:
            names.append(_only_name(content))
        place += 4 + size
    if len(names) > 1:
        raise MalformedError("the client's hello names several hosts")
    return names[0] if names else ""


def _only_name(content: bytes) -> str:
    whole, kind, size = struct.unpack_from(">HBH", content)
    if kind != 0 or whole != 3 + size or len(content) != 5 + size:
        raise MalformedError("the client's hello names several hosts")
    return content[5:].decode("ascii")


class Question(NamedTuple):
    """A query of DNS; `number`, `flags` and `asked` go into the answer."""

    number: int
    flags: int
    asked: bytes
    name: str
    kind: int


def parse_question(packet: bytes) -> Question:
    """Read a query with one question (RFC 1035, section 4)."""
    try:
        number, flags, questions = struct.unpack_from(">HHH", packet)
        if flags & 0xF800 or questions != 1:
            raise MalformedError("this is not a query")
        labels, place = [], 12
        while size := packet[place]:
            if size > 63:
                raise MalformedError("a label is too long")
            labels.append(packet[place + 1 : place + 1 + size].decode("ascii"))
            place += 1 + size
        kind, family = struct.unpack_from(">HH", packet, place + 1)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedError("this is not a query") from error
    if family != _INTERNET:
        raise MalformedError("this is not a query of the internet")
    return Question(number, flags, packet[12 : place + 5], ".".join(labels), kind)


def answer_to(question: Question, address: bytes | None) -> bytes:
    """The answer: the address of IPv4, or that there is no such name; no records of other kinds."""
    wanted = address is not None and question.kind == _A
    code = 0 if address is not None else 3
    flags = 0x8080 | (question.flags & 0x0100) | code
    head = struct.pack(">HHHHHH", question.number, flags, 1, int(wanted), 0, 0) + question.asked
    if not wanted or address is None:
        return head
    seconds = 60
    return head + struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, seconds, len(address)) + address


def asks_for_address(question: Question) -> bool:
    """Whether the query asks for an address of IPv4 or IPv6."""
    return question.kind in (_A, _AAAA)
