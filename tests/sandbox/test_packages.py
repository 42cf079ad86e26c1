"""Packages for code, from an index of their own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.judge import Judge, Repository
from coderoom.sandbox import Sandbox
from coderoom.sandbox.packages import environment_with, kept_environments, prune_environments
from coderoom.sandbox.requirements import packages_in

WALLS = ["bubblewrap", pytest.param("namespaces", marks=pytest.mark.allwalls)]


def wheel(name: str, version: str, needs: str = "", pth: str = "") -> tuple[str, bytes]:
    """A wheel of a module whose `VERSION` is its version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{name}_hook.pth": f"import os; {pth}\n"} if pth else {}),
    }
    record = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", data.getvalue()


def source(name: str, links: Mapping[str, str]) -> tuple[str, bytes]:
    """A package that has to be built, whose code leaves links beside it."""
    backend = f"""
import os, socket, zipfile
def build_wheel(folder, *_):
    os.makedirs("/workspace/site", exist_ok=True)
    for source, name in {links!r}.items():
        if not os.path.lexists("/workspace/site/" + name):
            os.symlink(source, "/workspace/site/" + name)
    try:
        reached = socket.create_connection(("192.0.2.7", 443), 1)
    except OSError as error:
        reached = type(error).__name__
    info = "{name}-1.dist-info"
    with zipfile.ZipFile(os.path.join(folder, "{name}-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("{name}.py", f"REACHED = {{reached!r}}; PLACE = {{os.getcwd()!r}}")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\nRequires-Dist: dots\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return "{name}-1-py3-none-any.whl"
"""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in (
            ("pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"),
            ("backend.py", backend),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"),
        ):
            member = tarfile.TarInfo(f"{name}-1/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"{name}-1.tar.gz", data.getvalue()


class Index:
    """A package index on this machine.

    Attributes:
        requested: The paths that were asked for.
        gate: Closed, it keeps back all wheels.
    """

    def __init__(self, marker: Path) -> None:
        touch = f"os.path.isdir({str(marker.parent)!r}) and open({str(marker)!r}, 'a').close()"
        touch = f"import sys; sys.dots_began = True; {touch}"
        files = dict([
            wheel("circles", "1.0", needs="dots"),
            wheel("circles", "2.0", needs="dots"),
            wheel("dots", "1.5", pth=touch),
            *(wheel(f"many{number}", "1.0") for number in range(4)),
            source("built", {f"{marker.parent}/secret.py": "secret.py", str(marker.parent): "__pycache__"}),
        ])  # fmt: skip
        self.marker = marker
        self.requested: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requested.append(self.path)
                name = self.path.strip("/").split("/")[-1]
                listed = sorted(each for each in files if each.split("-")[0] == name)
                if name in files:
                    index.gate.wait(60)
                    self.answer(200, files[name], "application/octet-stream")
                elif listed:
                    links = (
                        f'<a href="/{each}#sha256={hashlib.sha256(files[each]).hexdigest()}">{each}</a>'
                        for each in listed
                    )
                    self.answer(200, "<br>".join(links).encode(), "text/html")
                else:
                    self.answer(404, b"", "text/html")

            def do_HEAD(self) -> None:
                self.do_GET()

            def answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body if self.command == "GET" else b"")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("packages")
    index = Index(folder / "host" / "code-of-a-package-ran")
    (folder / "host").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "UV_DEFAULT_INDEX": index.url,
            "UV_CACHE_DIR": str(folder / "uv"),
            "UV_HTTP_RETRIES": "0",
            "PIP_INDEX_URL": index.url,
            "PIP_FIND_LINKS": "",
            "PIP_RETRIES": "0",
            "PIP_CONFIG_FILE": os.devnull,
            "XDG_CACHE_HOME": str(folder / "cache"),
        }.items():
            patch.setenv(name, value)
        yield index
    index.server.shutdown()
    index.server.server_close()
    assert not (folder / "host" / "code-of-a-package-ran").exists()


@pytest.mark.parametrize("wall", WALLS)
async def test_code_has_its_packages_and_below_them_those_of_the_interpreter(wall: str, index: Index) -> None:
    code = """
import subprocess, sys
import circles, dots, pydantic
said = subprocess.run([sys.executable, "-c", "import circles, pydantic; print(circles.VERSION)"], capture_output=True)
try:
    open(circles.__file__, "a")
    writable = True
except OSError:
    writable = False
print(circles.VERSION, dots.VERSION, said.stdout.decode().strip(), writable, hasattr(sys, "dots_began"))
"""
    async with Sandbox(wall, packages=["circles<2"]) as sandbox:
        result = await sandbox.run(code)
        assert result.stdout == "1.0 1.5 1.0 False False\n", result.stderr
        index.requested.clear()
        async with Sandbox(wall, packages=["circles<2"]) as again:
            assert (await again.run("import circles; print(circles.VERSION)")).stdout == "1.0\n"
    assert not index.requested


@pytest.mark.slow
async def test_the_tests_of_a_repository_have_them(index: Index, tmp_path: Path) -> None:
    test = "import circles\n\n\ndef test_version():\n    assert circles.VERSION == '1.0'\n"
    (tmp_path / "test_circles.py").write_text(test)
    tests = Repository(folder=tmp_path, command="python3 -m pytest -q --noconftest", packages=("circles<2",))
    async with Judge() as judge:
        (verdict,) = await judge.run({}, tests)
    assert (verdict.test, verdict.passed) == ("test_circles::test_version", True), verdict.why


@pytest.mark.slow
async def test_sandboxes_and_processes_build_at_the_same_time(index: Index) -> None:
    sets = [["many0", "many1"], ["many2"], ["many3", "many0"], ["many0", "many1"]]
    code = f"""
import asyncio
from coderoom.sandbox.packages import environment_with
async def main():
    found = await asyncio.gather(*(environment_with(each, None, None) for each in {sets!r}))
    print(*(each.folder.name for each in found))
asyncio.run(main())
"""
    others = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE) for _ in range(2)
    ]
    said = [(await each.communicate())[0].decode().split() for each in others]
    assert said[0] == said[1]
    assert said[0][0] == said[0][3]
    assert len(set(said[0])) == 3


@pytest.mark.slow
async def test_a_build_that_is_killed_leaves_nothing_half(index: Index) -> None:
    index.gate.clear()
    code = "from coderoom.sandbox import Sandbox; import asyncio; asyncio.run(Sandbox(packages=['circles>1']).start())"
    building = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    index.requested.clear()
    while not any(path.endswith(".whl") for path in index.requested):
        await asyncio.sleep(0.02)
    building.kill()
    await building.wait()
    index.gate.set()
    async with Sandbox(packages=["circles>1"]) as sandbox:
        assert (await sandbox.run("import circles; print(circles.VERSION)")).stdout == "2.0\n"


async def test_what_has_to_be_built_is_built_behind_a_wall(index: Index) -> None:
    host = index.marker.parent
    (host / "secret.py").write_text("KEY = 'of the host'\n")
    async with Sandbox(packages=["built", "allow-builds"]) as sandbox:
        result = await sandbox.run("import built, dots, pydantic; print(built.REACHED, dots.VERSION, built.PLACE)")
    said = result.stdout.split()
    assert said[:2] == ["OSError", "1.5"], result.stderr
    assert Path(said[2]).is_relative_to("/tmp")
    # What links lead to on the host is neither read nor changed.
    assert [each.name for each in host.iterdir()] == ["secret.py"]
    (kept,) = [each.folder for each in kept_environments() if "built==1" in each.packages]
    assert not list(kept.rglob("secret*"))
    assert any({"built==1", "dots==1.5"} == set(each.packages) for each in kept_environments())
    index.requested.clear()
    async with Sandbox(packages=["built", "allow-builds"]):
        assert not index.requested


async def test_a_damaged_environment_is_built_again_and_one_can_be_removed(index: Index) -> None:
    found = await environment_with(["dots"], None, None)
    assert found.lock.startswith("dots==1.5 ")
    (record,) = found.folder.glob("lib/*/site-packages/dots-*/RECORD")
    record.unlink()
    assert await environment_with(["dots"], None, None) == found
    assert record.exists()
    # What was resolved is repeated with its lock file.
    lock = found.folder / "requirements.lock"
    assert (await environment_with([str(lock)], None, None)).lock == found.lock
    assert found.folder in [each.folder for each in kept_environments()]
    assert found.folder in [each.folder for each in prune_environments(0)]
    assert not found.folder.exists()


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        (["panda"], "there is no 'panda'.* Did you mean 'pandas'"),
        (["circles>7"], "circles"),
        (["built"], "no wheel"),
        (["missing.txt"], r"missing\.txt cannot be read"),
    ],
)
async def test_what_cannot_be_installed_is_said(packages: list[str], words: str, index: Index) -> None:
    with pytest.raises(RequestError, match=words):
        await Sandbox(packages=packages).start()


async def test_without_an_index_what_is_missing_is_no_fault_of_the_code(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    with pytest.raises(SandboxUnavailable, match="fetched from no index"):
        await environment_with(["unheard"], None, None)


@pytest.mark.slow
async def test_code_installs_what_it_may(index: Index) -> None:
    async with Sandbox(packages=["dots", "on-request"], allowed_packages=["Circles", "many*"]) as sandbox:
        async with sandbox.session() as session:
            for word in ("allow-builds", "secrets.txt", "same.lock"):  # Which are not the code's to give.
                refused = await session.run(f"_install_packages([{word!r}, 'many0'])")
                assert refused.error is not None
                assert f"{word!r} is not a package with versions" in refused.error.message
            refused = await session.run("!pip install built")
            assert refused.error is not None
            assert "'built' is not among those that code may install: Circles, many*" in refused.error.message
            assert (await session.run("%pip install -q 'circles<2'")).stdout == "Installed: circles<2\n"
            code = "import circles, dots, subprocess, sys\nprint(circles.VERSION, dots.VERSION)\n"
            code += "subprocess.run([sys.executable, '-c', 'import circles; print(circles.VERSION)'])\nNone"
            assert (await session.run(code)).output == "1.0 1.5\n1.0\n"
            assert (await session.run("!pip install many2 circles\nimport many2")).error is None
            shell = "cd /\n  python3 -m pip install 'many3>=1' > /dev/null 2>&1\npip install built || exit 3"
            refused = await session.run(shell, language="bash")
            assert (refused.exit_code, refused.code, refused.stdout) == (3, shell, "")
            assert "'built' is not among those that code may install" in refused.stderr
            code = "python -c 'import many2, many3, circles; print(circles.VERSION)'"
            assert (await session.run(code, language="sh")).output == "1.0\n"
            assert (await session.run("import many3\nmany3.VERSION")).value == "1.0"
            script = "# /// script\n# dependencies = [{}]\n# ///\nimport many1\nmany1.VERSION"
            assert (await session.run(script.format("'many1'"))).value == "1.0"
            refused = await session.run(script.format("'built'"))
            assert refused.error is not None
            assert "may install" in refused.error.message
        assert sandbox.lock.startswith("circles==1.0 ")
        other = await sandbox.run("import circles")
        assert other.error is not None


@pytest.mark.slow
async def test_pip_does_it_where_uv_is_missing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    by_uv = await environment_with(["circles", "many1"], None, None)
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "/nowhere")
    prune_environments(0)
    by_pip = await environment_with(["circles", "many1"], None, None)
    names = [[line.split()[0] for line in each.lock.splitlines() if line[:1] != " "] for each in (by_uv, by_pip)]
    assert names[0] == names[1] == ["circles==2.0", "dots==1.5", "many1==1.0"]
    async with Sandbox(packages=["circles", "many1"]) as sandbox:
        assert (await sandbox.run("import circles; print(circles.VERSION)")).stdout == "2.0\n"
    with pytest.raises(RequestError, match=r"there is no 'panda'.* Did you mean 'pandas'"):
        await environment_with(["panda"], None, None)


@pytest.mark.slow
async def test_a_script_names_its_packages(index: Index, tmp_path: Path) -> None:
    script = (
        "# /// script\n# dependencies = [\n#   'circles==1.0',\n# ]\n# ///\nimport circles\nprint(circles.VERSION)\n"
    )
    assert packages_in(script) == ["circles==1.0"]
    (tmp_path / "main.py").write_text(script)

    async def coderoom(*words: str) -> str:
        command = [sys.executable, "-m", "coderoom", *words, "--journal", "journal"]
        ran = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "\n1.0\n" in await coderoom("exec", "main.py", "--package", "many2")
    (tmp_path / "same.lock").write_text(lock := await coderoom("runs", "lock"))
    assert re.findall(r"^\S+==\S+", lock, re.MULTILINE) == ["circles==1.0", "dots==1.5", "many2==1.0"]
    (tmp_path / "other.py").write_text("import circles, many2\nprint(circles.VERSION, many2.VERSION)")
    assert "\n1.0 1.0\n" in await coderoom("exec", "other.py", "--package", "same.lock")


@pytest.mark.parametrize(
    "metadata",
    [
        "dependencies = ['six @ file:///etc/passwd']",
        "dependencies = ['--index-url=http://x']",
        "dependencies = 'six'",
        "dependencies = ['allow-builds']",
        "dependencies = ['requirements.txt']",
        "x",
    ],
)
def test_metadata_of_a_script_names_packages_only(metadata: str) -> None:
    with pytest.raises(RequestError):
        packages_in(f"# /// script\n# {metadata}\n# ///\n")
