"""Credentials: what the host gets, and what code can see of it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox
from coderoom.sandbox.proxy.credentials import Authority, Credential, Mask, Spellings

from ..places import STRONGEST, Place, on_walls
from .servers import echo

TOKEN = "s3cr3t/Token+of=mine&more"
FETCH = """
import http.client, json, ssl
def fetch(method, path, **headers):
    connection = http.client.HTTPSConnection("127.0.0.1", 3128)
    connection.set_tunnel("localhost", PORT)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return [answer.status, dict(answer.headers), answer.read().decode()]
"""


@pytest.fixture
async def opened(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Sandbox, Any]]:
    if not (place.has_mounts or place.wall == "docker"):
        pytest.skip("sessions have no network of their own")
    authority = Authority()
    (tmp_path / "authority.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("CODEROOM_TEST_TOKEN", TOKEN)
    with echo(authority.context_for("localhost")) as server:
        credential = {"value": "Bearer ${CODEROOM_TEST_TOKEN}", "methods": ["GET", "POST"], "paths": ["/repos/me"]}
        hosts = {f"localhost:{server.server_port}": credential}
        async with place.sandbox(network=["127.0.0.1"], credentials=hosts) as sandbox:
            yield sandbox, server


@on_walls(STRONGEST.wall, "docker")
async def test_the_host_gets_it_and_code_never_has_it(opened: tuple[Sandbox, Any]) -> None:
    sandbox, server = opened
    async with sandbox.session() as session:
        await session.run(FETCH.replace("PORT", str(server.server_port)))
        result = await session.run("fetch('GET', '/repos/me/x?y', Range='bytes=0-3', Authorization='mine')")
        status, headers, body = result.value
        assert (status, headers["x-seen"]) == (200, "Bearer " + "*" * len(TOKEN))
        assert json.loads(body)["headers"]["Authorization"] == headers["x-seen"]
        assert "range" not in body.lower()
        assert server.heads == [f"GET /repos/me/x?y HTTP/1.1|localhost:{server.server_port}"]
        for method, path, host in (
            ("DELETE", "/repos/me", None),
            ("GET", "/repos/merry", None),
            ("GET", "/repos/me/../you", None),
            ("GET", "/repos/me/%2e%2E/you", None),
            ("GET", "/repos/me", "other.example"),
            ("GET", "https://other.example/repos/me", None),
        ):
            arguments = f", Host={host!r}" if host else ""
            result = await session.run(f"fetch({method!r}, {path!r}{arguments})")
            assert result.value[0] == 403, (method, path, host)
            assert result.network[-1].why.startswith("A request to localhost")
        assert len(server.heads) == 1
        wrong = await session.run("import os\nopen(os.environ['SSL_CERT_FILE']).read().count('BEGIN CERT')")
        assert wrong.value >= 1
        for shown in (repr(sandbox.config), str(sandbox.config.model_dump()), repr(result)):
            assert TOKEN not in shown
            assert "s3cr3t" not in shown


@pytest.mark.slow
async def test_a_command_takes_it_from_the_environment(opened: tuple[Sandbox, Any], tmp_path: Path) -> None:
    _, server = opened
    place = f"localhost:{server.server_port}"
    code = FETCH.replace("PORT", str(server.server_port)) + "print(fetch('GET', '/me')[2])\n"
    code += "print(fetch('POST', '/')[0], fetch('GET', '/other')[0])"
    (tmp_path / "main.py").write_text(code)

    async def execute(credential: str) -> tuple[int | None, str]:
        command = [sys.executable, "-m", "coderoom", "exec", "main.py", "--json", "--allow-host", "127.0.0.1"]
        running = await asyncio.create_subprocess_exec(
            *command,
            "--credential",
            credential,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await running.communicate())[0].decode()
        assert "s3cr3t" not in said
        return running.returncode, said

    for limited, answers in (("{}", "200 200"), ("GET,HEAD {}/me,/you", "403 403"), ("GET {}", "403 200")):
        status, said = await execute(f"{limited.format(place)}=X-Key: key ${{CODEROOM_TEST_TOKEN}}")
        assert (status, f"key {'*' * len(TOKEN)}" in said, answers in said) == (0, True, True), said
    for wrong, words in (
        (f"{place}=X-Key: {TOKEN}", "single quotes"),
        (f"X-Key: {TOKEN.replace('=', '')}", "such as"),
        (f"{place}=X-Key: ${{CODEROOM_TEST_NOT_SET}}", "is not set"),
        (f"get {place}=X-Key: ${{CODEROOM_TEST_TOKEN}}", "methods"),
    ):
        status, said = await execute(wrong)
        assert (status, words in said) == (2, True), said


async def test_a_host_whose_certificate_is_not_valid_gets_nothing(opened: tuple[Sandbox, Any], place: Place) -> None:
    with echo(Authority().context_for("localhost")) as server:
        hosts = {f"localhost:{server.server_port}": {"value": "Bearer ${CODEROOM_TEST_TOKEN}"}}
        async with place.sandbox(network=["127.0.0.1"], credentials=hosts) as sandbox:
            result = await sandbox.run(FETCH.replace("PORT", str(server.server_port)) + "\nfetch('GET', '/')")
            assert result.value[0] == 502
            assert "is not valid" in result.value[2]
            assert server.heads == []


@pytest.mark.parametrize(
    ("credentials", "network", "said"),
    [
        ({"api.example.org": {"value": "Bearer ${NOT_SET_AT_ALL}"}}, [], "'NOT_SET_AT_ALL' is not set"),
        ({"*.example.org": {"value": "x"}}, [], "a credential is for one host"),
        ({"api.example.org": {"value": "x", "header": "A b"}}, [], "credentials: api.example.org: header: "),
        ({"api.example.org": {"valu": "x"}}, [], "credentials: api.example.org: value: "),
        ({"api.example.org": {"value": "x"}}, True, "give a list of hosts"),
    ],
)
async def test_wrong_credentials_are_refused(credentials: Any, network: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        async with Sandbox(credentials=credentials, network=network):
            pass


def test_the_mask_finds_every_spelling_wherever_it_is_cut() -> None:
    raw = TOKEN.encode()
    known = Spellings([TOKEN])
    spellings = [
        raw,
        raw.upper(),
        raw.hex().encode(),
        raw.hex(":").encode(),
        raw[::-1],
        TOKEN.encode("utf-16-le"),
        b"s3cr3t%2FToken%2Bof%3Dmine%26more",
        b"s3cr3t%252FToken%252Bof%253Dmine%2526more",
        rb"s3cr3t\/Token+of=mine&more",
        rb"s3cr3t\u002FToken\u002bof\u003dmine\u0026more",
        b"s3cr3t/Token+of=mine&amp;more",
        "".join(f"&#{each};" for each in raw).encode(),
        b"s3cr3t&#x2F;Token&#43;of&#061;mine&#38;more",
        base64.b32encode(raw),
        base64.encodebytes(bytes(50) + raw),
        *(base64.urlsafe_b64encode(b"x" * before + raw + b"y") for before in range(3)),
    ]
    for spelling in spellings:
        for cut in range(len(spelling) + 1):
            mask = Mask(known)
            text = mask.feed(b"before " + spelling[:cut]) + mask.feed(spelling[cut:] + b" after") + mask.end()
            assert len(text) == len(spelling) + 13
            assert text.startswith(b"before ")
            assert text.endswith(b" after")
            assert text.count(b"*") >= len(raw), (spelling, cut, text)
        mask = Mask(known)
        assert raw[:6] not in b"".join(mask.feed(spelling[at : at + 1]) for at in range(len(spelling))) + mask.end()
    assert known.mask(b"nothing of it") == b"nothing of it"
    # Events are not held back, and long secrets are found in pieces.
    assert Mask(known).feed(b"data: s3cr\n\n") == b"data: s3cr\n\n"
    long = "".join(map(str, range(1000)))
    assert not re.search(rb"\d{6}", Spellings([long]).mask(f"a{long}b".encode()))


def test_paths_are_whole_segments() -> None:
    credential = Credential("h.example", 443, "A", "v", ["v"], [], ["/a", "/b/"])
    for path in ("/a", "/a/", "/a/b?c=/../", "/b/c"):
        assert not credential.objection("GET", path), path
    for path in ("/", "/ab", "/b", "/a/..", "/a/./b", "/a//b", "/a\\b", "/a/%2F..", "/a;x", "/A", "/a#/../b", "/a/%09"):
        assert credential.objection("GET", path), path
    assert credential.objection("TRACE", "/a")
