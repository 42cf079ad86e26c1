"""Packages of npm for code, from a registry of their own."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Sandbox
from coderoom.sandbox.node_packages import node_modules_with
from coderoom.sandbox.packages import kept_environments, prune_environments

from .places import Place, on_every_kind_of_wall, on_walls


class Registry:
    """A registry of npm on this machine.

    Attributes:
        requested: The paths that were asked for.
    """

    def __init__(self, marker: Path) -> None:
        self.requested: list[str] = []
        self._files: dict[str, bytes] = {}
        self._versions: dict[str, dict[str, Any]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requested.append(path := unquote(self.path))
                body = registry._files.get(path)
                if body is None and (versions := registry._versions.get(path.strip("/"))):
                    latest = list(versions)[-1]
                    body = json.dumps(
                        {"name": path[1:], "versions": versions, "dist-tags": {"latest": latest}}
                    ).encode()
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.publish("inner", "1.0.0")
        self.publish("inner", "2.0.0")
        self.publish("@scope/outer", "1.0.0", {"inner": "^1.0.0", "other-name": "npm:inner@1"})
        self.publish("scripted", "1.0.0", scripts={"postinstall": f"touch {marker}", "prepare": f"touch {marker}"})
        for name, versions in (
            ("of-git", "git+http://127.0.0.1:9/x.git"),
            ("of-address", f"{self.url}/inner-1.0.0.tgz"),
            ("of-folder", f"file:{marker.parent}"),
        ):
            self.publish(name, "1.0.0", {"it": versions})

    def publish(self, name: str, version: str, needs: Mapping[str, str] = {}, **more: Any) -> None:
        """Add a package, whose module is its version."""
        facts = {"name": name, "version": version, "dependencies": dict(needs), "bin": "main.js", **more}
        main = (
            f"#!/usr/bin/env node\nmodule.exports = '{name} {version}'\nrequire.main === module && console.log('ran')\n"
        )
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for path, text in (("package.json", json.dumps({**facts, "main": "main.js"})), ("main.js", main)):
                member = tarfile.TarInfo(f"package/{path}")
                member.size, member.mode = len(text), 0o755
                archive.addfile(member, io.BytesIO(text.encode()))
        file = f"/{name}-{version}.tgz"
        self._files[file] = data.getvalue()
        digest = base64.b64encode(hashlib.sha512(data.getvalue()).digest()).decode()
        dist = {"tarball": self.url + file, "integrity": f"sha512-{digest}"}
        self._versions.setdefault(name, {})[version] = {**facts, "dist": dist}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)  # Workers of some walls are another user.
    marker = folder / "code-of-a-package-ran"
    registry = Registry(marker)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "npm_config_registry": registry.url,
            "npm_config_cache": str(folder / "npm-cache"),
            "npm_config_fetch_retries": "0",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }.items():
            patch.setenv(name, value)
        yield registry
    registry.server.shutdown()
    registry.server.server_close()
    assert not marker.exists()
    shutil.rmtree(folder)


@pytest.mark.slow
@on_every_kind_of_wall
async def test_code_has_its_packages(place: Place, registry: Registry) -> None:
    packages = ["npm:@scope/outer@1", "npm:inner", "npm:scripted@*"]
    if place.wall == "docker":
        with pytest.raises(RequestError, match="use an image that has the packages"):
            await place.sandbox(packages=packages).start()
        return
    async with place.sandbox(packages=packages) as sandbox, sandbox.session() as session:
        assert sandbox.lock == (
            "npm:@scope/outer>inner@1.0.0\nnpm:@scope/outer@1.0.0\nnpm:inner@2.0.0\nnpm:scripted@1.0.0\n"
        )
        code = "console.log(require('@scope/outer'), require('inner'))"
        said = "@scope/outer 1.0.0 inner 2.0.0\n"
        assert (await sandbox.run(code, language="javascript")).output == said
        assert (await session.run(code, language="javascript")).output == said
        assert (await session.run(f'!node -e "{code}"; scripted')).output == f"{said}ran\n"
        written = await session.run("touch $(dirname $(command -v scripted))/x", language="sh")
        assert (written.exit_code == 0) == (place.wall == "none")
        code = "import a from 'inner'\nconsole.log(a)"
        for language in ("javascript", "typescript"):
            assert (await sandbox.run(code, language=language)).output == "inner 2.0.0\n"
        assert (await session.run(code, language="javascript")).output == "inner 2.0.0\n"
        file = f"cat > a.mjs <<'E'\n{code}; import('absent').catch(error => console.log(error.message))\nE\nnode a.mjs"
        found, absent = (await session.run(file, language="sh")).output.splitlines()
        assert found == "inner 2.0.0"
        assert absent.startswith("Cannot find package 'absent' imported from ")
        assert absent.endswith("/a.mjs")
    registry.requested.clear()
    async with place.sandbox(packages=packages):
        assert not registry.requested


@pytest.mark.slow
@on_walls("bubblewrap", "landlock")
async def test_code_installs_what_it_may(place: Place, registry: Registry) -> None:
    packages = ["on-request", "npm:inner@1"]
    async with place.sandbox(packages=packages, allowed_packages=["npm:inner", "npm:@scope/*"]) as sandbox:
        async with sandbox.session() as session:

            async def said(code: str, language: str) -> str:
                return (await session.run(code, language=language)).output

            imported = "import a from 'inner'; console.log(a)"
            assert await said(imported, "typescript") == "inner 1.0.0\n"
            assert await said("let kept = 1", "javascript") == ""
            install = "!cd . && npm install --silent inner@2; node -e \"console.log(require('inner'))\""
            assert await said(install, "python") == "Installed: inner@2\ninner 2.0.0\n"
            for language in ("javascript", "typescript"):  # The first one is a process that was there before.
                assert await said(f"{imported}; console.log(require('inner'))", language) == "inner 2.0.0\n" * 2
            outer = "// Needed.\nnpm i @scope/outer -D\nconsole.log(require('@scope/outer'), kept)"
            assert await said(outer, "javascript") == "Installed: @scope/outer\n@scope/outer 1.0.0 1\n"
            assert await said("outer", "bash") == "ran\n"
            started = await session.start(["node", "-p", "require('@scope/outer')"])
            assert await started.wait() == 0
            again = "npm add inner@1.0.0 > /dev/null && node -p \"require('inner')\""
            assert await said(again, "bash") == "inner 1.0.0\n"
            missing = await said("import a from 'absent'", "javascript")
            assert re.match(r"Uncaught Error.*: Cannot find package 'absent' imported from \S+\n\[packages=", missing)
            refused = "The package 'npm:scripted' is not among those that code may install: npm:inner, npm:@scope/*."
            for code, language in (
                ("!npm install scripted", "python"),
                ("npm install scripted || exit 3", "sh"),
                ("!npm install scripted", "javascript"),
            ):
                result = await session.run(code, language=language)
                assert result.error is not None
                assert refused in result.stderr + result.error.message
                assert "Code installs no packages here" not in result.output
            assert sandbox.lock == "npm:@scope/outer@1.0.0\nnpm:inner@1.0.0\n"
        assert (await sandbox.run(imported, language="javascript")).output == "inner 1.0.0\n"


@pytest.mark.slow
async def test_a_notebook_that_may_not_install_packages_of_npm_is_told_how(registry: Registry) -> None:
    async with Sandbox(packages=["npm:inner@1"]) as sandbox, sandbox.session() as session:
        for command, language in (
            ("!npm install inner", "python"),
            ("npm i inner", "sh"),
            ("npm i inner", "javascript"),
        ):
            assert (await session.run(command, language=language)).output == "Already installed: inner\n"
        result = await session.run("!npm() { false; }; npm install inner absent@2")
        assert result.error is not None
        assert result.error.message == (
            "Code installs no packages here: packages=['npm:absent@2'] (--package npm:absent@2) does, before it runs."
        )
        assert "[Code installs" not in result.stderr


@pytest.mark.slow
async def test_the_lock_gives_the_same_versions_again(registry: Registry, tmp_path: Path) -> None:
    first = await node_modules_with(["npm:@scope/outer", "npm:inner@2"])
    file = tmp_path / "same.lock"
    file.write_text(first.lock)
    registry.publish("inner", "1.9.0")
    registry.publish("inner", "2.9.0")
    async with Sandbox(packages=[str(file), "on-request"]) as again, again.session() as session:
        assert again.lock == first.lock
        assert (await session.run("_install_packages([])")).error is None
        assert again.lock == first.lock
    assert (await node_modules_with(["npm:inner@2.x"])).lock == "npm:inner@2.9.0\n"
    assert any("npm:inner@2.9.0" in each.packages for each in kept_environments())
    assert first.folder.parent in [each.folder for each in prune_environments(0)]
    assert not first.folder.exists()


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("npm:of-git", "npm"),
        ("npm:of-address", "npm"),
        ("npm:of-folder", "npm"),
        ("npm:missing-one", r"npm has no such package or version.*missing-one"),
        ("npm:inner@77", r"npm has no such package or version.*inner@77"),
        *((name, "is not a package of npm") for name in ("npm:git+https://x/y", "npm:../x", "npm:a@npm:b", "npm:-g")),
    ],
)
async def test_what_is_not_of_the_registry_is_refused(package: str, words: str, registry: Registry) -> None:
    with pytest.raises(RequestError, match=words):
        await Sandbox(packages=[package]).start()


async def test_without_a_registry_it_is_no_fault_of_the_code(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    with pytest.raises(SandboxUnavailable, match="fetched from no registry"):
        await node_modules_with(["npm:unheard"])
