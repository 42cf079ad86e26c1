"""What the proxy reads from hostile bytes: what two readers could understand differently is an error."""

from __future__ import annotations

import struct

import pytest

from coderoom.sandbox.proxy.wire import (
    LONGEST_HEAD,
    Head,
    MalformedError,
    answer_to,
    asks_for_address,
    chunk_size,
    looks_like_http,
    parse_head,
    parse_header,
    parse_question,
    server_name,
)


def test_the_head_of_a_request() -> None:
    data = b"GET http://a/b HTTP/1.1\r\nHost: a\r\nX-Two:\t1 \r\nx-two: 2\r\n\r\n"
    head = parse_head(data)
    assert head[:3] == ("GET", "http://a/b", 1)
    assert (head.all_of("x-two"), head.body) == (["1", "2"], 0)
    assert head.encode() == b"GET http://a/b HTTP/1.1\r\nhost: a\r\nx-two: 1\r\nx-two: 2\r\n\r\n"


@pytest.mark.parametrize(
    "line",
    [b"GET /", b"GET / HTTP/2.0", b"GET  / HTTP/1.1", b"GET /\0 HTTP/1.1", b" GET / HTTP/1.1", b"GET / HTTP/1.1 "],
)
def test_what_is_no_request(line: bytes) -> None:
    with pytest.raises(MalformedError, match="not a request"):
        parse_head(line + b"\r\n\r\n")


@pytest.mark.parametrize("line", [b"Host a", b" Host: a", b"Host : a", b"Host: a\nb", b": a"])
def test_what_is_no_header(line: bytes) -> None:
    with pytest.raises(MalformedError, match="header"):
        parse_header(line)


@pytest.mark.parametrize(
    ("headers", "minor", "size"),
    [
        ({}, 1, 0),
        ({"content-length": "12"}, 0, 12),
        ({"transfer-encoding": "Chunked"}, 1, None),
    ],
)
def test_the_size_of_a_body(headers: dict[str, str], minor: int, size: int | None) -> None:
    assert Head("POST", "/", minor, [*headers.items()]).body == size


@pytest.mark.parametrize(
    ("headers", "minor"),
    [
        ([("transfer-encoding", "chunked"), ("content-length", "1")], 1),
        ([("transfer-encoding", "chunked")], 0),
        ([("transfer-encoding", "gzip, chunked")], 1),
        ([("transfer-encoding", "chunked")] * 2, 1),
        ([("content-length", "1")] * 2, 1),
        ([("content-length", "+1")], 1),
    ],
)
def test_an_end_that_is_ambiguous(headers: list[tuple[str, str]], minor: int) -> None:
    with pytest.raises(MalformedError, match="ambiguous"):
        _ = Head("POST", "/", minor, headers).body


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"\r\n get / http/1.0\n", True),
        (b"GET / HT", None),
        (b"", None),
        (b"\x16\x03\x01", False),
        (b"EHLO a\r\n", False),
        (b"PRI * HTTP/2.0\r\n", False),
        (b"GET " + b"a" * (LONGEST_HEAD - 5), None),
        (b"GET " + b"a" * (LONGEST_HEAD - 4), True),
    ],
    ids=range(9),
)
def test_what_a_server_could_read_as_http(data: bytes, found: bool | None) -> None:
    assert looks_like_http(data) is found


def test_the_size_of_a_chunk() -> None:
    assert [chunk_size(line) for line in (b"0\r\n", b"1A;x=y\r\n")] == [0, 26]
    for line in (b"\r\n", b"1\n", b"-1\r\n", b"0x1\r\n", b"1" * 16 + b"\r\n"):
        with pytest.raises(MalformedError, match="chunk"):
            chunk_size(line)


def hello(*names: bytes, pieces: int = 1) -> bytes:
    """The first message of a TLS client, in so many records."""
    entries = b"".join(struct.pack(">HHHBH", 0, 5 + len(name), 3 + len(name), 0, len(name)) + name for name in names)
    extensions = struct.pack(">HH", 10, 2) + b"\0\0" + entries
    body = b"\3\3" + b"r" * 32 + b"\1s" + b"\0\2cc" + b"\1\0" + struct.pack(">H", len(extensions)) + extensions
    whole = b"\1" + len(body).to_bytes(3, "big") + body
    size = -(-len(whole) // pieces)
    parts = [whole[at : at + size] for at in range(0, len(whole), size)]
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(part)) + part for part in parts)


def test_the_name_in_a_hello() -> None:
    assert server_name(hello(b"a.example")) == "a.example"
    assert server_name(hello(b"a.example", pieces=8)) == "a.example"
    assert server_name(hello()) == ""
    assert server_name(hello(b"a.example", pieces=2)[:-1]) is None
    assert server_name(b"\x16\3\1") is None
    short = b"\1\0\0\x27" + b"\3\3" + b"r" * 32 + b"\0" + b"\0\0" + b"\1\0"
    assert server_name(b"\x16\3\1" + struct.pack(">H", len(short)) + short) == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (hello(b"a", b"b"), "several hosts"),
        (hello(b"a.example", pieces=9), "too long"),
        (b"\x17" + hello(b"a")[1:], "not the beginning of TLS"),
        (b"\x16\2" + hello(b"a")[2:], "not the beginning of TLS"),
        (b"\x16\3\1\0\0", "not the beginning of TLS"),
        (hello(b"a")[:5] + b"\2" + hello(b"a")[6:], "not a client's hello"),
        (hello("ü".encode()), "malformed"),
        (hello(b"a").replace(b"\0\0\1a", b"\1\0\1a"), "several hosts"),
    ],
    ids=range(8),
)
def test_a_hello_that_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        server_name(data)


def query(
    name: bytes = b"\1a\7example\0", kind: int = 1, family: int = 1, flags: int = 0x0100, questions: int = 1
) -> bytes:
    return struct.pack(">HHHHHH", 7, flags, questions, 0, 0, 0) + name + struct.pack(">HH", kind, family)


def test_a_question_and_its_answer() -> None:
    question = parse_question(query() + b"more")
    assert (question.name, question.kind, question.asked) == ("a.example", 1, query()[12:])
    head = struct.Struct(">HHHHHH")
    answer = answer_to(question, b"\x7f\0\0\1")
    assert head.unpack_from(answer) == (7, 0x8180, 1, 1, 0, 0)
    assert answer[12:] == question.asked + struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + b"\x7f\0\0\1"
    assert head.unpack_from(answer_to(question, None)) == (7, 0x8183, 1, 0, 0, 0)
    other = parse_question(query(kind=28, flags=0))
    assert answer_to(other, b"\x7f\0\0\1") == head.pack(7, 0x8080, 1, 0, 0, 0) + other.asked
    kinds = [asks_for_address(parse_question(query(kind=kind))) for kind in (1, 28, 16)]
    assert kinds == [True, True, False]


@pytest.mark.parametrize(
    "packet",
    [
        query(flags=0x8000),
        query(questions=2),
        query(family=3),
        query(name=b"\x40" + b"a" * 64 + b"\0"),
        query()[:-1],
        query(name=b"\2\xc3\xbc\0"),
        b"",
    ],
    ids=range(7),
)
def test_what_is_no_query(packet: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_question(packet)
