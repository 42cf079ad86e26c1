"""The proxy's process: what it lets through, byte by byte, and what it says of the rest."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct

import pytest

from .servers import echo, in_process, resolve_to

GET = b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n"


async def test_the_ways_in_lead_to_the_host_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with echo() as first, echo() as second:
        here = f"127.0.0.1:{first.server_port}"
        async with in_process(monkeypatch, here) as proxy:
            place = here.encode()
            absolute = b"GET http://%b/a?b HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\n\r\n" % place
            # What follows the request must not reach the server: it could be for another of its hosts.
            said = await proxy.say(absolute + GET % b"other.example")
            assert json.loads(said.partition(b"\r\n\r\n")[2])["headers"].get("proxy-authorization") is None
            tunnel = b"CONNECT %b HTTP/1.1\r\n\r\n" % place
            assert (await proxy.say(tunnel + GET % place + b"GET /2 HTTP/1.0\r\n\r\n")).count(b" 200 ") == 3
            socks = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", first.server_port)
            assert b" 200 " in await proxy.say(socks + b"GET /3 HTTP/1.0\r\n\r\n")
            assert first.heads == [
                f"GET /a?b HTTP/1.1|{here}",
                f"GET / HTTP/1.1|{here}",
                "GET /2 HTTP/1.0|None",
                "GET /3 HTTP/1.0|None",
            ]
            assert proxy.uses() == [("127.0.0.1", first.server_port, "")]
            there = f"127.0.0.1:{second.server_port}"
            advice = f'{there} is not in the allow-list; network: ["{there}"] allows it.'
            for request in (f"GET http://{there}/ HTTP/1.1\r\n\r\n", f"CONNECT {there} HTTP/1.1\r\n\r\n"):
                assert (await proxy.say(request.encode())).startswith(f"HTTP/1.1 403 {advice}\r\n".encode())
            assert await proxy.say(socks[:-2] + struct.pack(">H", second.server_port)) == b"\x05\x00\x05\x02" + bytes(
                [0, 1, *bytes(6)]
            )
            assert proxy.uses() == [("127.0.0.1", second.server_port, advice)]
            assert not second.heads


async def test_the_end_of_what_code_sends_is_passed_on_and_the_answer_comes_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"%d bytes" % len(await reader.read()))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as counting:
        place = f"127.0.0.1:{counting.sockets[0].getsockname()[1]}"
        async with in_process(monkeypatch, place) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"CONNECT %b HTTP/1.1\r\n\r\n\0binary" % place.encode())
            writer.write_eof()
            async with asyncio.timeout(10):
                assert (await reader.read()).endswith(b"\r\n\r\n7 bytes")
            writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT 2130706433:%p HTTP/1.1\r\n\r\n",
        b"CONNECT 0177.0.0.1:%p HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:%p@x:%p HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1:%p\\@x/ HTTP/1.1\r\n\r\n",
        b"GET http://a@127.0.0.1:%p/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%p\r\n\r\n",
        b"GET http://127.0.0.1:%p/ HTTP/1.1\nHost: x\n\n\r\n\r\n",
        b"GET http://127.0.0.1:%p/ HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n",
        b"GET http://127.0.0.1:%p/ HTTP/1.1\r\nA : b\r\n\r\n",
        b"POST http://127.0.0.1:%p/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://127.0.0.1:%p/ HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST http://127.0.0.1:%p/ HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST http://127.0.0.1:%p/ HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
    ],
)
async def test_what_two_readers_could_understand_differently_is_refused(
    monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    with echo() as server:
        async with in_process(monkeypatch, f"127.0.0.1:{server.server_port}") as proxy:
            said = await proxy.say(request_.replace(b"%p", b"%d" % server.server_port))
            assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
            assert not server.heads


async def test_a_request_in_a_tunnel_is_for_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with echo() as server:
        resolve_to(monkeypatch, a_example=["127.0.0.1"])
        port = server.server_port
        async with in_process(monkeypatch, "a.example", f"127.0.0.1:{port}") as proxy:
            tunnel = b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % port
            post = b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            for hidden in (
                GET % b"b.example",
                GET % b"a.example" + GET % b"b.example",
                post + GET % b"b.example",
                b"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
                b"\r\n" + GET % b"b.example",
                b"GET\t/\tHTTP/1.1\r\nHost: b.example\r\n\r\n",
                b"M-SEARCH / HTTP/1.1\r\nHost: a.example\r\n\r\n" + GET % b"b.example",
                post[:-2] + b"x: y\n\nGET / HTTP/1.1\nHost: b.example\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + GET % b"b.example",
            ):
                await proxy.say(tunnel + hidden)
                assert not any("b.example" in head for head in server.heads), hidden
                assert any("A request in a connection to 'a.example'" in why for _, _, why in proxy.uses()), hidden


async def test_tls_is_for_the_host_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def hello(name: str) -> bytes:
        said = ssl.MemoryBIO()
        client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname=name)
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        return said.read()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read(65536))
        writer.close()

    reached: list[bytes] = []
    resolve_to(monkeypatch, a_example=["127.0.0.1"])
    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with in_process(monkeypatch, "a.example", f"127.0.0.1:{port}") as proxy:
            tunnel = b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % port
            await proxy.say(tunnel + hello("a.example"))
            assert reached.pop()
            proxy.uses()
            other = hello("b.example")
            # The same in two records: the name is looked for in the whole message.
            body = other[5:]
            cut = b"".join(other[:3] + struct.pack(">H", len(part)) + part for part in (body[:60], body[60:]))
            for record in (other, cut, b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"):
                await proxy.say(tunnel + record)
                assert any("TLS" in why for _, _, why in proxy.uses())
            assert not any(reached)


async def test_each_connection_is_checked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with echo() as server:
        port = server.server_port
        # The first address is in the list; then the name leads to others, one of them beside the first.
        resolve_to(monkeypatch, a_example=["127.0.0.1", "127.0.0.2", "10.0.0.1 127.0.0.1", "::ffff:127.0.0.2"])
        async with in_process(monkeypatch, "*.example", f"127.0.0.1:{port}") as proxy:
            request = b"GET http://a.example:%d/ HTTP/1.1\r\n\r\n" % port
            said = [(await proxy.say(request))[9:12] for _ in range(4)]
            assert said == [b"200", b"403", b"200", b"403"]
            assert (
                f'127.0.0.2:{port} is an address of this machine; network: ["127.0.0.2:{port}"] allows it.'
                in (proxy.uses()[1][2])
            )


async def test_names_are_answered_here_if_they_are_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(name: str, kind: int = 1) -> bytes:
        labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
        return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)

    with echo() as server:
        resolve_to(monkeypatch, a_example=["127.0.0.1"])
        async with in_process(monkeypatch, "*.example", "127.0.0.1") as proxy:
            answer = await proxy.ask(query("A.Example"))
            assert answer[3] & 15 == 0
            assert answer[-4:] == socket.inet_aton("127.64.0.1")
            assert (await proxy.ask(query("a.example", 28)))[6:8] == b"\0\0"  # No address of IPv6, and no error.
            refused = await proxy.ask(query("secret-in-a-name.attacker.test"))
            assert refused[3] & 15 == 3
            assert proxy.uses() == [
                (
                    "secret-in-a-name.attacker.test",
                    None,
                    "secret-in-a-name.attacker.test is not in the allow-list; "
                    'network: ["secret-in-a-name.attacker.test"] allows it.',
                )
            ]
            # A connection to that address is one to the name, at the same port.
            assert await proxy.say(GET % b"a.example", ("127.64.0.1", proxy.other_port)) in (b"", b"!")
            assert proxy.uses()[0][:2] == ("a.example", proxy.other_port)
            assert server.heads == []


async def test_a_session_has_so_many_bytes_and_the_next_one_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with echo() as server:
        async with in_process(monkeypatch, f"127.0.0.1:{server.server_port}", network_bytes=1000) as proxy:
            request = b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % server.server_port
            said = [await proxy.say(request) for _ in range(6)]
            assert b" 200 " in said[0]
            assert b" 403 The session has used up its network_bytes, 1000." in said[-1]
            proxy.room.begin()
            assert b" 200 " in await proxy.say(request)


async def test_a_flood_of_names_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process(monkeypatch) as proxy:
        for number in range(300):
            proxy.room.note(f"{number}.{chr(34) * 300}.example", 443, chr(34) * 1000, connections=1)
        proxy.room.note("allowed.example", 443, connections=1)
        report = proxy.room.report()
        assert report["uses"][0]["host"] == "allowed.example"
        assert len(report["uses"]) + report["left_out"] == 301
        assert len(json.dumps(report)) < 1 << 17
        assert "\\u00" not in json.dumps(report)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\na:" + b" " * 60_000 + b"\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: " + "é.".encode() * 16_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
        b"\x16\x03\x01\x00\x01\x01" * 40_000,
    ],
)
async def test_hostile_bytes_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    with echo() as server:
        async with in_process(monkeypatch, f"127.0.0.1:{server.server_port}") as proxy:
            place = b"127.0.0.1:%d" % server.server_port
            hostile = asyncio.ensure_future(proxy.say(b"CONNECT %b HTTP/1.1\r\n\r\n" % place + sent))
            request = b"GET http://%b/ HTTP/1.1\r\n\r\n" % place
            assert [(await proxy.say(request))[9:12] for _ in range(3)] == [b"200"] * 3
            hostile.cancel()
