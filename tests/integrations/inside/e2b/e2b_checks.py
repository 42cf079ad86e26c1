"""What E2B's own clients for Python do at a server of sandboxes. `docs/e2b.md` has these sentences as a table."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import e2b
import pytest
from e2b_code_interpreter import AsyncSandbox, Sandbox

from tests.integrations.service import serving


@pytest.fixture(scope="session", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    with serving(folder, "--local-network") as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("E2B_DOMAIN", url.replace("http://127.0.0.1", "localhost"))
        patch.setenv("E2B_API_URL", url)
        patch.setenv("E2B_SANDBOX_URL", url)
        patch.setenv("E2B_API_KEY", "token-of-one")
        yield url


@pytest.fixture(scope="session")
def box(server: str) -> Iterator[Sandbox]:
    with Sandbox.create(metadata={"of": "checks"}, envs={"GIVEN": "1"}) as box:
        yield box


# --- Sandboxes ---


def test_create_and_kill() -> None:
    """`Sandbox.create`, `is_running`, `kill`; a second `kill` is `False`."""
    made = Sandbox.create()
    assert made.is_running()
    assert made.kill()
    assert not made.is_running()
    assert not made.kill()
    with pytest.raises(e2b.TimeoutException):
        made.run_code("1")


def test_list_by_metadata(box: Sandbox) -> None:
    """`Sandbox.list` with pages, by metadata, state, template and time; other tenants' sandboxes are not in it."""
    with Sandbox.create(metadata={"of": "pages"}) as one, Sandbox.create(metadata={"of": "pages"}) as two:
        pages = Sandbox.list(query=e2b.SandboxQuery(metadata={"of": "pages"}), limit=1)
        found = []
        while pages.has_next:
            found += [each.sandbox_id for each in pages.next_items()]
        assert found == [two.sandbox_id, one.sandbox_id]
        assert Sandbox.list(api_key="token-of-other").next_items() == []


def test_get_info(box: Sandbox) -> None:
    """`get_info`: metadata, state, beginning and end, memory and disk."""
    info = box.get_info()
    assert (info.metadata, info.state, info.memory_mb) == ({"of": "checks"}, e2b.SandboxState.RUNNING, 1024)
    assert info.started_at < info.end_at
    query = e2b.SandboxQuery(metadata={"of": "checks"}, started_after=info.started_at)
    assert [each.sandbox_id for each in Sandbox.list(query=query).next_items()] == [box.sandbox_id]


def test_set_timeout() -> None:
    """`timeout` and `set_timeout`: a sandbox ends by itself."""
    made = Sandbox.create(timeout=300)
    made.set_timeout(1)
    for _ in range(100):
        if not made.is_running():
            break
        time.sleep(0.1)
    assert not made.is_running()


def test_connect_from_elsewhere(box: Sandbox) -> None:
    """`Sandbox.connect`: another client goes on with the same state."""
    box.run_code("kept = 5")
    assert Sandbox.connect(box.sandbox_id).run_code("kept").text == "5"


def test_pause_and_resume() -> None:
    """`pause` and `connect`: variables, files and commands stay, and nothing answers meanwhile."""
    with Sandbox.create() as made:
        made.run_code("kept = 6")
        assert made.pause()
        assert not made.pause()
        assert not made.is_running()
        made.connect()
        assert made.run_code("kept").text == "6"


def test_pause_at_timeout() -> None:
    """`lifecycle={"on_timeout": "pause", "auto_resume": True}`: the next request lets it go on."""
    made = Sandbox.create(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    made.run_code("kept = 7")
    for _ in range(100):
        if made.get_info().state == e2b.SandboxState.PAUSED:
            break
        time.sleep(0.1)
    assert made.get_info().state == e2b.SandboxState.PAUSED
    assert made.run_code("kept").text == "7"
    made.kill()


def test_pause_of_files_only() -> None:
    """`pause(mode="filesystem")` and `connect(on_resume="reboot")`: files stay, variables and commands do not."""
    with Sandbox.create() as made:
        made.files.write("kept.txt", "x")
        made.run_code("gone = 1")
        made.commands.run("sleep 58", background=True)
        made.pause(mode="filesystem")
        made.connect()
        assert made.run_code("'gone' in globals()").text == "False"
        assert (made.files.read("kept.txt"), made.commands.list()) == ("x", [])


_KEPT = "kept, open('kept.txt').read(), open('/tmp/kept.txt').read()"


def kept_in(made: Sandbox) -> None:
    made.run_code("kept = 1\nfor name in ('kept.txt', '/tmp/kept.txt'): open(name, 'w').write('one')")


def change(made: Sandbox) -> None:
    made.run_code("kept = 2\nfor name in ('kept.txt', '/tmp/kept.txt'): open(name, 'w').write('two')")


def test_snapshots() -> None:
    """`create_snapshot`, and `create` of it: variables of Python and Bash, files in `/home/user` and `/tmp`."""
    with Sandbox.create() as first:
        kept_in(first)
        first.run_code("export OF_BASH=1", language="bash")
        snapshot = first.create_snapshot()
        change(first)
        with Sandbox.create(snapshot.snapshot_id, envs={"OWN": "1"}, metadata={"of": "snapshots"}) as one:
            first.kill()
            assert one.run_code(_KEPT).text == "(1, 'one', 'one')"
            change(one)
            assert one.run_code("echo $OF_BASH$OWN", language="bash").logs.stdout == ["11\n"]
            assert one.run_code("process.env.OWN", language="js").text == "1"
            assert one.run_code("import os; os.environ['OWN']").text == "1"
            assert one.commands.run("cat kept.txt; echo $OWN").stdout == "two1\n"
            one.files.write("large", b"x" * 3_000_000)
            assert 3_000_000 <= one.get_metrics()[0].disk_used < 4_000_000
            info = one.get_info()
            assert (info.template_id, info.metadata) == (snapshot.snapshot_id, {"of": "snapshots"})
        with Sandbox.create(snapshot.snapshot_id) as two:
            assert two.run_code(_KEPT).text == "(1, 'one', 'one')"
            assert two.files.read("kept.txt") == "one"
            two.pause()
            two.connect()
            second = two.create_snapshot()
            assert Sandbox.delete_snapshot(snapshot.snapshot_id)
            with pytest.raises(e2b.SandboxException, match="There is no template"):
                Sandbox.create(snapshot.snapshot_id)
            assert two.run_code("kept").text == "1"
        with Sandbox.create(second.snapshot_id) as third:
            assert third.run_code(_KEPT).text == "(1, 'one', 'one')"
        assert Sandbox.delete_snapshot(second.snapshot_id)
        assert not Sandbox.delete_snapshot(second.snapshot_id)


def test_names_of_snapshots(box: Sandbox) -> None:
    """`create_snapshot(name=...)`: a name is that of its newest; `list_snapshots` by sandbox and name, with pages."""
    with Sandbox.create() as made:
        kept_in(made)
        old, other = made.create_snapshot("mine"), made.create_snapshot("mine:v2")
        change(made)
        new = made.create_snapshot("mine")
        assert new.names == ["mine:default"]
        pages, found = made.list_snapshots(limit=2), []
        while pages.has_next:
            found += [(each.snapshot_id, each.names) for each in pages.next_items()]
        assert found == [(new.snapshot_id, new.names), (other.snapshot_id, ["mine:v2"]), (old.snapshot_id, [])]
        assert [each.snapshot_id for each in Sandbox.list_snapshots(name="mine:v2").next_items()] == [other.snapshot_id]
        assert box.list_snapshots().next_items() == []
        for name, value in (("mine", "2"), ("mine:v2", "1")):
            with Sandbox.create(name) as one:
                assert one.run_code("kept").text == value
        for each in ("mine", "mine:v2", old.snapshot_id):
            assert Sandbox.delete_snapshot(each)


def test_snapshots_of_files_only() -> None:
    """`create_snapshot(mode="filesystem")`: files without variables."""
    with Sandbox.create() as made:
        kept_in(made)
        snapshot = made.create_snapshot(mode="filesystem")
        with Sandbox.create(snapshot.snapshot_id) as one:
            assert one.run_code("'kept' in globals(), open('kept.txt').read()").text == "(False, 'one')"
        Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_forks() -> None:
    """`fork` of a running sandbox, also several; each goes on by itself."""
    with Sandbox.create(metadata={"of": "forks"}) as first:
        kept_in(first)
        one, other = first.fork(timeout=60, count=2)
        assert isinstance(one, Sandbox)
        assert isinstance(other, Sandbox)
        change(one)
        assert [each.run_code("kept").text for each in (first, one, other)] == ["1", "2", "1"]
        assert other.get_info().metadata == {"of": "forks"}
        assert first.list_snapshots().next_items() == []
        one.kill()
        first.kill()
        assert other.run_code(_KEPT).text == "(1, 'one', 'one')"
        other.kill()


def test_snapshots_of_others() -> None:
    """Snapshots are their tenant's; a sandbox of one has its network, and no contexts but the default ones."""
    with Sandbox.create() as made:
        snapshot = made.create_snapshot("mine")
        others = {"api_key": "token-of-other"}
        for name in (snapshot.snapshot_id, "mine"):
            with pytest.raises(e2b.SandboxException, match="There is no template"):
                Sandbox.create(name, **others)
            assert not Sandbox.delete_snapshot(name, **others)
        assert Sandbox.list_snapshots(**others).next_items() == []
        for call in (Sandbox.create_snapshot, Sandbox.fork):
            with pytest.raises(e2b.SandboxNotFoundException):
                call(made.sandbox_id, **others)
        with pytest.raises(e2b.SandboxException, match="has the network of the first one"):
            Sandbox.create("mine", network={"allow_out": ["a.example.org"], "deny_out": ["0.0.0.0/0"]})
        with Sandbox.create("mine") as one, pytest.raises(e2b.SandboxException, match="the default contexts only"):
            one.create_code_context()
        made.pause()
        for refused in (made.create_snapshot, made.fork):
            with pytest.raises(e2b.SandboxException, match="is paused"):
                refused()
        Sandbox.delete_snapshot("mine")


def test_metrics(box: Sandbox) -> None:
    """`get_metrics`: the processor, memory and disk that the sandbox uses now."""
    box.commands.run("while :; do :; done", background=True)
    box.run_code("kept = bytearray(200_000_000)")
    box.files.write("large", b"x" * 3_000_000)
    [now] = box.get_metrics()
    assert now.cpu_used_pct > 10
    assert 200_000_000 < now.mem_used < now.mem_total == 1 << 30
    assert 3_000_000 <= now.disk_used < now.disk_total
    for each in box.commands.list():
        box.commands.kill(each.pid)
    box.files.remove("large")
    box.run_code("del kept")


def test_tokens_are_checked(box: Sandbox) -> None:
    """API keys are tenants; each sandbox has an access token of its own, which every request inside needs."""
    with pytest.raises(e2b.AuthenticationException):
        Sandbox.create(api_key="wrong-key-of-nobody")
    with pytest.raises(e2b.SandboxException):
        Sandbox.connect(box.sandbox_id, api_key="token-of-other")
    with Sandbox.create(api_key="token-of-other") as other:
        url = f"{box.envd_api_url}/files?path=x"
        for token in (None, other._envd_access_token, "token-of-one"):
            headers = {"E2b-Sandbox-Id": box.sandbox_id, **({} if token is None else {"X-Access-Token": token})}
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(url, headers=headers))
            assert refused.value.code == 401


def test_templates() -> None:
    """`Template.exists`: there is one template, with two names; another is a `SandboxException`."""
    assert [e2b.Template.exists(name) for name in ("base", "code-interpreter-v1", "mine")] == [True, True, False]
    with pytest.raises(e2b.SandboxException, match="There is no template 'mine'"):
        Sandbox.create("mine")


def test_what_is_not_there() -> None:
    """`update_network`, volumes, secrets, MCP gateways, new templates: an error of their type."""
    missing = "not supported by this server"
    with Sandbox.create() as made, pytest.raises(e2b.SandboxException, match=missing):
        made.update_network({})
    with pytest.raises(e2b.SandboxException, match=missing):
        Sandbox.create(mcp={"duckduckgo": {}})
    with pytest.raises(e2b.VolumeException, match=missing):
        e2b.Volume.create("mine")
    with pytest.raises(e2b.SecretException, match=missing):
        e2b.Secret.create("mine", "value")
    with pytest.raises(e2b.BuildException, match=missing):
        e2b.Template.build(e2b.Template().from_python_image("3"), "mine")


# --- Code ---


def test_run_code(box: Sandbox) -> None:
    """`run_code`: output, the value, the count; variables last."""
    box.run_code("x = 20")
    done = box.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert (done.text, done.logs.stdout, done.logs.stderr, done.error) == ("21", ["out\n"], ["err\n"], None)
    assert done.execution_count is not None


def test_errors(box: Sandbox) -> None:
    """Errors: name, value and traceback."""
    error = box.run_code("def f():\n    1 / 0\nf()").error
    assert error is not None
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "line 2, in f" in error.traceback


def test_callbacks(box: Sandbox) -> None:
    """`on_stdout`, `on_stderr`, `on_result`, `on_error` while the code runs."""
    seen: list[Any] = []
    began = time.monotonic()
    box.run_code(
        "import time, sys\nsys.stdout.write('a\\n')\nsys.stdout.flush()\n"
        "display(1)\ntime.sleep(1)\nprint('b', file=sys.stderr)\n1/0",
        on_stdout=lambda each: seen.append((each.line, time.monotonic() - began)),
        on_stderr=lambda each: seen.append(each.line),
        on_result=lambda each: seen.append(each.text),
        on_error=lambda each: seen.append(each.name),
    )
    assert [seen[0][0], *seen[1:]] == ["a\n", "1", "b\n", "ZeroDivisionError"]
    assert seen[0][1] < time.monotonic() - began - 0.9


def test_rich_results(box: Sandbox) -> None:
    """Results in all forms: text, HTML, Markdown, SVG, PNG, JPEG, PDF, LaTeX, JSON, JavaScript, others as `extra`."""
    shown = box.run_code(
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>x</b>'\n"
        "    def _repr_markdown_(self): return '**x**'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_json_(self): return {'x': 1}\n"
        "    def __repr__(self): return 'x'\n"
        "display({'text/latex': '$x$', 'x/own': 'y'}, raw=True)\nShown()"
    ).results
    assert (shown[0].latex, shown[0].extra, shown[0].is_main_result) == ("$x$", {"x/own": "y"}, False)
    last = shown[1]
    assert (last.text, last.html, last.markdown, last.png, last.json) == (
        "x",
        "<b>x</b>",
        "**x**",
        "iVBORw==",
        {"x": 1},
    )
    assert last.is_main_result
    assert [each.name for each in box.files.list("/home/user")] == []


def test_contexts(box: Sandbox) -> None:
    """Contexts: `create_code_context` with `cwd` and `language`, `list`, `restart`, `remove`."""
    context = box.create_code_context(cwd="/tmp")
    assert box.run_code("import os; own = os.getcwd(); own", context=context).text == "/tmp"
    missing = box.run_code("own").error
    assert missing is not None
    assert missing.name == "NameError"
    assert context.id in [each.id for each in box.list_code_contexts()]
    box.restart_code_context(context)
    assert box.run_code("'own' in globals(), os", context=context).error is not None
    box.remove_code_context(context)
    with pytest.raises(e2b.NotFoundException):
        box.run_code("1", context=context)


def test_languages(box: Sandbox) -> None:
    """Languages: Python, JavaScript and Bash with a state; R, Java, TypeScript and others if they are installed."""
    assert box.run_code("let n = [1, 2]; n", language="js").text == "[ 1, 2 ]"
    assert box.run_code("await Promise.resolve(n.length)", language="javascript").text == "2"
    box.run_code("v=3", language="bash")
    assert box.run_code("echo $v", language="bash").logs.stdout == ["3\n"]


def test_environment_variables(box: Sandbox) -> None:
    """`envs` of a sandbox, and of one piece of code."""
    code = "import os; os.environ.get('GIVEN'), os.environ.get('OWN')"
    assert box.run_code(code, envs={"GIVEN": "2", "OWN": "3"}).text == "('2', '3')"
    assert box.run_code(code).text == "('1', None)"


def test_code_that_takes_too_long(box: Sandbox) -> None:
    """`timeout` of code: it is interrupted, and variables stay."""
    box.run_code("before = 1")
    with pytest.raises(e2b.TimeoutException):
        box.run_code("import time; time.sleep(60)", timeout=1)
    assert box.run_code("before").text == "1"


def test_killed_while_code_runs() -> None:
    """A sandbox that is killed ends what runs, which says so."""
    made = Sandbox.create()
    timer = threading.Timer(1, made.kill)
    timer.start()
    with pytest.raises(e2b.TimeoutException, match="killed"):
        made.run_code("import time; time.sleep(60)")
    timer.join()


# --- Files ---


def test_read_and_write(box: Sandbox) -> None:
    """`files.write`, `write_files`, `read`, of text, bytes and streams; code and commands see the same files."""
    box.files.write("folder/a.txt", "one")
    assert box.run_code("open('/home/user/folder/a.txt').read()").text == "one"
    assert box.files.read("/home/user/folder/a.txt") == "one"
    data = bytes(range(256)) * 4096
    box.files.write_files([{"path": "folder/b", "data": data}, {"path": "/tmp/c", "data": "three"}])
    assert box.files.read("folder/b", format="bytes") == data
    assert b"".join(box.files.read("folder/b", format="stream")) == data
    assert box.commands.run("cat /tmp/c").stdout == "three"
    box.files.write("folder/d", data, gzip=True)
    assert box.files.read("folder/d", format="bytes") == data
    with pytest.raises(e2b.FileNotFoundException):
        box.files.read("nothing")


def test_folders(box: Sandbox) -> None:
    """`files.list` with `depth`, `exists`, `get_info`, `make_dir`, `rename`, `remove`."""
    assert box.files.make_dir("f/g")
    assert not box.files.make_dir("f/g")
    box.files.write("f/g/h.txt", "x")
    assert [each.path for each in box.files.list("f", depth=2)] == ["/home/user/f/g", "/home/user/f/g/h.txt"]
    assert box.files.get_info("f/g/h.txt").permissions == "-rw-r--r--"
    assert box.files.rename("f/g/h.txt", "f/i.txt").path == "/home/user/f/i.txt"
    assert (box.files.exists("f/i.txt"), box.files.exists("f/g/h.txt")) == (True, False)
    box.files.remove("f")
    assert not box.files.exists("f")


def test_watch_dir(box: Sandbox) -> None:
    """`files.watch_dir`, also `recursive`."""
    box.files.make_dir("watched/below")
    watch = box.files.watch_dir("watched", recursive=True)
    box.files.write("watched/below/new.txt", "x")
    kinds = [(each.name, each.type) for each in watch.get_new_events()]
    assert ("below/new.txt", e2b.FilesystemEventType.CREATE) in kinds
    assert ("below/new.txt", e2b.FilesystemEventType.WRITE) in kinds
    watch.stop()


def test_signed_urls(box: Sandbox) -> None:
    """`download_url` and `upload_url`, with `use_signature_expiration`."""
    box.files.write("signed.txt", "x")
    with urllib.request.urlopen(box.download_url("signed.txt", use_signature_expiration=60)) as answer:
        assert answer.read() == b"x"
    for url in (
        box.download_url("signed.txt", use_signature_expiration=-1),
        box.download_url("signed.txt").replace("signed", "others"),
    ):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url)


def test_links_lead_nowhere(box: Sandbox) -> None:
    """Paths are those that the code sees: a link to a file of the server's machine is not followed there."""
    box.run_code("import os; os.symlink('/proc/1/environ', 'link'); os.symlink('/etc/shadow', 'shadow')")
    with pytest.raises(e2b.SandboxException):
        box.files.read("shadow")
    box.files.remove("link")
    box.files.remove("shadow")


# --- Commands ---


def test_commands(box: Sandbox) -> None:
    """`commands.run` with `envs` and `cwd`, its output while it runs, its exit code."""
    seen: list[str] = []
    done = box.commands.run("pwd; echo $A; echo err >&2", envs={"A": "1"}, cwd="/tmp", on_stdout=seen.append)
    assert (done.stdout, done.stderr, done.exit_code) == ("/tmp\n1\n", "err\n", 0)
    assert "".join(seen) == done.stdout
    with pytest.raises(e2b.CommandExitException) as failed:
        box.commands.run("exit 3")
    assert failed.value.exit_code == 3


def test_commands_in_the_background(box: Sandbox) -> None:
    """Commands in the background: `list`, `connect`, `send_stdin`, `stream_input`, `close_stdin`, `kill`."""
    handle = box.commands.run("cat", background=True, stdin=True)
    assert handle.pid in [each.pid for each in box.commands.list()]
    same = box.commands.connect(handle.pid)
    box.commands.send_stdin(handle.pid, "hello\n")
    box.commands.stream_input(handle.pid, iter(["to ", b"all\n"]))
    box.commands.close_stdin(handle.pid)
    assert same.wait().stdout == "hello\nto all\n"
    sleeping = box.commands.run("sleep 60", background=True)
    assert box.commands.kill(sleeping.pid)
    assert not box.commands.kill(sleeping.pid)


def test_command_that_takes_too_long(box: Sandbox) -> None:
    """`timeout` of a command: it is killed."""
    with pytest.raises(e2b.TimeoutException):
        box.commands.run("sleep 59", timeout=1)
    for _ in range(100):
        if "sleep 59" not in str(box.commands.list()):
            break
        time.sleep(0.1)
    assert "sleep 59" not in str(box.commands.list())


def test_terminal(box: Sandbox) -> None:
    """`pty.create`, `connect`, `send_stdin`, `stream_input`, `resize`, `kill`."""
    seen: list[bytes] = []
    terminal = box.pty.create(e2b.PtySize(rows=20, cols=70))
    box.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    terminal.wait(on_pty=seen.append)
    assert b"20 70" in b"".join(seen)
    other = box.pty.create(e2b.PtySize(rows=20, cols=70))
    other.disconnect()
    same = box.pty.connect(other.pid)
    box.pty.stream_input(other.pid, iter([b"exit ", b"3\n"]))
    with pytest.raises(e2b.CommandExitException) as ended:
        same.wait()
    assert ended.value.exit_code == 3


def test_git(box: Sandbox) -> None:
    """`git`: `init`, `clone`, `add`, `commit`, `status`, branches, configuration."""
    box.git.configure_user("A", "a@example.org")
    box.git.init("one", initial_branch="main")
    box.files.write("one/a.txt", "x")
    assert [each.name for each in box.git.status("one").file_status] == ["a.txt"]
    box.git.add("one")
    box.git.commit("one", "first")
    box.git.create_branch("one", "other")
    box.git.clone("one", path="two")
    assert box.git.branches("one").current_branch == "other"
    assert box.files.read("two/a.txt") == "x"
    assert box.git.get_config("user.name") == "A"


def test_one_user(box: Sandbox) -> None:
    """There is one user: `user="root"` is an `AuthenticationException`."""
    assert box.commands.run("whoami", user="user").stdout == "user\n"
    with pytest.raises(e2b.AuthenticationException, match="There is no user 'root'"):
        box.commands.run("id", user="root")


def asked(box: Sandbox, port: int, headers: dict[str, str], data: bytes | None = None) -> bytes:
    """What a server in a sandbox answers. The name of `get_host` is a header, as no name server knows it here."""
    url = f"{box.envd_api_url}/large?n=2&x=%2F"
    request = urllib.request.Request(url, data, {**headers, "Host": box.get_host(port)})
    with urllib.request.urlopen(request) as answer:
        found: bytes = answer.read()
        return found


def status_of(box: Sandbox, port: int, headers: dict[str, str]) -> int:
    try:
        asked(box, port, headers)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


_SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} {len(body)} {'e2b-traffic-access-token' in self.headers}".encode())
    def do_GET(self):
        self.send_response(404)
        self.end_headers()
HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.mark.parametrize("public", [False, True])
def test_ports(public: bool) -> None:
    """`get_host`: HTTP to servers in the sandbox, with its token; with `allow_public_traffic=True`, without."""
    with Sandbox.create(network={"allow_public_traffic": public}) as made:
        made.files.write("server.py", _SERVER)
        made.commands.run("python server.py", background=True)
        headers = {} if public else {"e2b-traffic-access-token": str(made.traffic_access_token)}
        for _ in range(100):
            if status_of(made, 8000, headers) != 502:  # It listens.
                break
            time.sleep(0.1)
        assert asked(made, 8000, headers, b"x" * 20_000_000) == b"/large?n=2&x=%2F 20000000 False"
        assert status_of(made, 8000, headers) == 404
        assert status_of(made, 8001, headers) == 502
        assert status_of(made, 8000, {}) == (404 if public else 401)


# --- The other client ---


def test_async_client() -> None:
    """All of it by `AsyncSandbox`, too; several sandboxes at a time."""

    async def use(number: int) -> tuple[str | None, str, str]:
        async with await AsyncSandbox.create() as first:
            snapshot = await first.create_snapshot()
            (fork,) = await first.fork(timeout=60)
            assert isinstance(fork, AsyncSandbox)
            await fork.kill()
        async with await AsyncSandbox.create(snapshot.snapshot_id) as made:
            assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id)
            value = (await made.run_code(f"x = {number}; x")).text
            await made.files.write("n", str(number))
            watch = await made.files.watch_dir(".", on_event=lambda _: None)
            output = (await made.commands.run("cat n")).stdout
            await watch.stop()
            return value, output, await made.files.read("n")

    async def use_all() -> list[tuple[str | None, str, str]]:
        return await asyncio.gather(*map(use, range(3)))

    assert asyncio.run(use_all()) == [(str(number), str(number), str(number)) for number in range(3)]
