"""The journal: runs are kept, go on after a kill, and hold no secrets."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from coderoom.errors import RequestError
from coderoom.runs import Journal, Step
from tests.support.commands import ROOT, coderoom, environment, recording
from tests.support.openai_server import Failure, OpenAIServer, Reply, Request

FIRST = "```python\nx = 41\nopen('ran', 'a').write('first ')\nprint('set')\n```"
SECOND = "```python\nopen('ran', 'a').write('second ')\nprint(x + 1)\n```"
ANSWERS = [FIRST, SECOND, "It is 42."]


class Folder:
    """A working folder with a journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal.sqlite3"

    def run(self, *arguments: str, server: OpenAIServer | None = None, **env: str) -> dict[str, Any]:
        done = self.command(*arguments, "--json", server=server, **env)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def command(
        self, *arguments: str, server: OpenAIServer | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return coderoom(*arguments, cwd=self.path, env={**self.env(server), **env})

    def env(self, server: OpenAIServer | None) -> dict[str, str]:
        known = {} if server is None else {"OPENAI_API_KEY": "test-key-1234", "OPENAI_BASE_URL": server.base_url}
        return {**known, "CODEROOM_JOURNAL": str(self.journal), "CODEROOM_MODEL": "gpt-4o-2024-08-06"}

    def ran(self) -> str:
        return (self.path / "work" / "ran").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


RUN = ("run", "code-act", "Compute it.", "--workspace", "work")


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(folder: Folder) -> None:
    reached, killed = threading.Event(), threading.Event()
    asked: list[int] = []

    def respond(request: Request) -> str:
        asked.append(len(request.messages))
        if len(asked) == 2:  # The process is killed while it waits for this one.
            reached.set()
            killed.wait(30)
        return ANSWERS[{2: 0, 4: 1, 6: 2}[len(request.messages)]]

    with OpenAIServer(respond=respond) as server:
        command = [sys.executable, "-m", "coderoom", *RUN]
        process = subprocess.Popen(
            command, cwd=folder.path, env=environment(folder.env(server)), stdout=subprocess.PIPE
        )
        assert reached.wait(30)
        [entry] = folder.run("runs")["runs"]
        assert entry["state"] == "running"
        refused = folder.command("resume", server=server)
        assert refused.returncode == 2
        assert f"process {process.pid} on" in refused.stderr
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed.set()
        assert folder.run("runs")["runs"][0]["state"] == "killed"
        resumed = folder.run("resume", server=server)
    assert (resumed["outcome"], resumed["answer"], resumed["run"]) == ("ok", "It is 42.", entry["id"])
    assert asked == [2, 4, 4, 6]
    # The first code ran again to have its variables, and that is said.
    assert folder.ran() == "first first second "
    assert any("was run again (1)" in notice for notice in resumed["notices"])
    assert folder.run("runs")["runs"][0]["state"] == "ok"
    assert "nothing is left to do" in folder.command("resume").stderr


def test_what_a_run_is_while_it_goes_on_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    run = journal.begin("run", "t", "", None, {"wall": "none"})
    assert [entry.id for entry in journal.runs(outcome="running")] == [run]
    journal.end(run, "cancelled", {})
    assert journal.runs(outcome="running") == []
    journal.claim(run, {"wall": "auto"}, task="Count.")
    [entry] = journal.runs(outcome="running")
    assert (entry.outcome, entry.ended, entry.task, entry.request) == (None, None, "Count.", {"wall": "auto"})
    with pytest.raises(RequestError, match="goes on"):
        journal.remove([run])
    journal.claim(run, task="Another one.")  # It has a task.
    journal.end(run, "ok", {})
    assert [(entry.task, entry.request) for entry in journal.runs(outcome="ok")] == [("Count.", {"wall": "auto"})]


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    assert journal.runs() == []
    with pytest.raises(RequestError, match="There is no run in the journal yet"):
        journal.find("last")
    for run in ("abc-1", "abd-2", "ab"):
        journal.begin("run", "t", "", None, {}, run)
    assert [journal.find(name).id for name in ("abc", "ab", "last")] == ["abc-1", "ab", "ab"]
    for name, words in {"a": "several runs begin with 'a': ab, abd-2, abc-1", "x%": "there is no run 'x%'"}.items():
        with pytest.raises(RequestError, match=words):
            journal.find(name)


def test_the_time_of_a_run_is_that_of_all_processes_that_worked_on_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    run = journal.begin("run", "t", "", None, {})
    for number, at in ((1, 100.0), (2, 500.0)):  # It was killed in between.
        journal.add(run, Step(number, "code", "", f"key {number}", at, 30.0, {}, {}))
    for told, kept in ((31.0, 60.0), (70.0, 70.0)):
        journal.end(run, "ok", {"seconds": told})
        assert journal.find(run).facts["seconds"] == kept


def test_the_newest_reply_to_a_request_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    for at, text in ((1.0, "old"), (3.0, "new"), (2.0, "older")):
        run = journal.begin("run", "t", "", None, {})
        journal.add(run, Step(1, "model", "", "key", at, 0.0, {}, {"content": text}))
        journal.add(run, Step(2, "call", "", "key", 9.0, 0.0, {}, {"content": "no reply"}))
    assert (journal.reply("key"), journal.reply("other")) == ({"content": "new"}, None)


@pytest.mark.slow
def test_a_failed_run_asks_only_what_was_not_answered(folder: Folder) -> None:
    with OpenAIServer([FIRST, SECOND, Failure(401, message="Incorrect API key.")]) as server:
        failed = folder.run(*RUN, server=server)
    assert failed["outcome"] == "failed"
    how = f"go on    coderoom resume {failed['run']}"
    assert how in folder.command("runs", "show").stdout
    with OpenAIServer(["It is 42."]) as server:
        resumed = folder.run("resume", server=server)
    assert (resumed["outcome"], resumed["answer"], resumed["attempts"]) == ("ok", "It is 42.", 2)
    assert how not in folder.command("runs", "show").stdout
    assert folder.ran() == "first second "


@pytest.mark.slow
def test_equal_requests_are_answered_from_earlier_runs(folder: Folder) -> None:
    answers = ["```python\nprint(42)\n```", "It is 42."]
    with OpenAIServer([*answers, *answers]) as server:
        first = folder.run(*RUN, "--cache", server=server)
        again = folder.run(*RUN, "--cache", server=server)
        assert len(server.requests) == 2
        assert (again["answer"], again["usage"]["total_tokens"], again["attempts"]) == (first["answer"], 0, 1)
        folder.run(*RUN, "--cache", server=server, CODEROOM_MODEL="gpt-4o-mini-2024-07-18")
        assert len(server.requests) == 4


@pytest.mark.slow
def test_an_instruction_goes_on_without_asking_again(folder: Folder) -> None:
    replies = YAML(typ="safe").load(ROOT / "examples" / "solve.replay.yaml")["replies"]
    solve = ("solve", "Roman numerals.", "--concurrency", "1", "--no-cache", "--out", "roman")
    with OpenAIServer([*replies[:4], Failure(401, message="Incorrect API key.")]) as server:
        assert not folder.run(*solve, server=server)["succeeded"]
    (elsewhere := folder.path / "elsewhere").mkdir()
    with OpenAIServer(replies[4:]) as server:
        done = coderoom("resume", "--json", cwd=elsewhere, env=folder.env(server))
        assert (json.loads(done.stdout)["succeeded"], len(server.requests)) == (True, len(replies) - 4)
    assert any((folder.path / "roman").glob("*.py"))
    with OpenAIServer(replies) as server:
        recorded = folder.run(*solve[:-2], "--record", "roman.jsonl", server=server)
    replayed = folder.run(*solve[:-2], "--model", "replay:roman.jsonl", "--no-journal")
    assert replayed["succeeded"]
    assert replayed["implementations"] == recorded["implementations"]
    entry = folder.run("runs")["runs"][-1]
    assert (entry["state"], entry["facts"]["all_tests_passed"]) == ("ok", True)


@pytest.mark.slow
def test_the_limit_of_an_instruction_can_be_raised(folder: Folder) -> None:
    replies = YAML(typ="safe").load(ROOT / "examples" / "solve.replay.yaml")["replies"]
    with OpenAIServer(replies) as server:
        solve = ("solve", "Roman numerals.", "--concurrency", "1", "--no-cache")
        assert not folder.run(*solve, "--max-tokens", "20", server=server)["succeeded"]
        refused = folder.command("resume", "--max-turns", "2", server=server)
        assert (refused.returncode, "--max-tokens, --max-seconds and --budget" in refused.stderr) == (2, True)
        assert folder.run("resume", "--max-tokens", "100000", server=server)["succeeded"]
    shown = folder.command("runs", "show", "--html", "run.html")
    page = (folder.path / "run.html").read_text()
    assert (shown.returncode, "divmod" in page, "what has changed" in page) == (0, True, True)


def test_a_limit_can_be_raised(folder: Folder) -> None:
    with OpenAIServer(ANSWERS) as server:
        assert folder.run(*RUN, "--max-tokens", "20", server=server)["outcome"] == "unfinished"
        assert folder.run("resume", "--max-tokens", "2000", server=server)["outcome"] == "ok"
    assert len(server.requests) <= 4  # One may have been on its way when the limit was met.


@pytest.mark.slow
def test_a_team_goes_on_with_a_further_task(folder: Folder) -> None:
    with OpenAIServer([FIRST, "It is set.", SECOND, "It is 42."]) as server:
        first = folder.run(*RUN, server=server)
        second = folder.run("run", "code-act", "Add one.", "--continue", server=server)
    assert second["answer"] == "It is 42."
    assert second["run"] == first["run"]
    assert "Compute it." in str(server.requests[-1].messages)
    refused = folder.command("run", "code-act", "x", "--continue", "--model", "openai:gpt-4o", "--timeout", "3")
    assert (refused.returncode, "leave out --model, --timeout" in refused.stderr) == (2, True)
    nothing = folder.command("run", "analyst", "x", "--continue")
    assert (nothing.returncode, "no run of the team 'analyst'" in nothing.stderr) == (2, True)


def test_code_that_gives_something_else_this_time_is_told_of(folder: Folder) -> None:
    varies = "```python\nimport uuid\nx = 41\nprint(uuid.uuid4())\n```"
    with OpenAIServer([varies, Failure(401, message="No.")]) as server:
        folder.run(*RUN, server=server)
    with OpenAIServer([SECOND, "It is 42."]) as server:
        notices = folder.run("resume", server=server)["notices"]
    assert any("begins with 'import uuid' gave" in notice for notice in notices)
    assert folder.run("runs", "show")["facts"]["notices"] == notices


def test_a_run_with_a_recording_goes_on_in_another_folder(folder: Folder, tmp_path: Path) -> None:
    recording(tmp_path / "r.json", ANSWERS)
    first = folder.run(*RUN, "--model", "replay:r.json", "--budget", "cells=1")
    assert first["outcome"] == "unfinished"
    other = tmp_path / "other"
    other.mkdir()
    done = coderoom("resume", "--budget", "cells=5", "--json", cwd=other, env=folder.env(None))
    assert json.loads(done.stdout)["answer"] == "It is 42.", done.stderr


def test_secrets_do_not_enter_it(folder: Folder) -> None:
    secret, key, number = "/hunter2/hunter2", "sk-abcdefghijklmnopqrstuvwxyz", "12345678"
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"
    texts = (secret, key, "test-key-1234", "MIIEow", "u:pass-word@", number)
    print_all = f"print('{secret} \\x1b[32m{key} test-key-1234 postgres://u:pass-word@db', {number}, {pem!r})"
    files = f"open('seen.txt', 'w').write('{key}')\nopen('seen.bin', 'wb').write(b'\\xff {key}')"
    reply = Reply(f"```python\n{files}\n{print_all}\n```")
    with OpenAIServer([reply, "Done."]) as server:
        run = folder.run(*RUN, server=server, MY_SERVICE_TOKEN=secret, PIN_SECRET=number)
        assert all(text in str(run["messages"]) for text in texts)
        assert run["succeeded"]
    told = folder.run("runs", "show")
    with sqlite3.connect(folder.journal) as database:
        database.execute("VACUUM")
    data = b"".join(file.read_bytes() for file in folder.path.glob("journal.sqlite3*"))
    for text in texts:
        assert text.encode() not in data
        assert text not in str(told)
    assert "${MY_SERVICE_TOKEN}" in str(told)


def test_keys_of_many_services_do_not_enter_it(tmp_path: Path) -> None:
    letters = "Ab0123456789" * 4
    prefixes = "sk- sk_live_ rk_test_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gsk_ xai- AIza xoxb- xapp- hf_ npm_"
    keys = [f"{prefix}{letters}" for prefix in f"{prefixes} ya29. pypi- dop_v1_ AGE-SECRET-KEY-1".split()]
    keys += [f"{start}{letters[:16].upper()}" for start in ("AKIA", "ASIA")]
    keys += [f"SG.{letters}.{letters}", f"eyJ{letters}.{letters}.{letters}", f"eyK{letters}.{letters}.{letters}"]
    around = [(key, f"{before}{key}") for key in keys for before in ("", "It is ", '"', "\n", "\x1b[32m", "\u00e9 ")]
    around += [(letters, f"Bearer {letters}"), ("u:a-pass-word", "https://u:a-pass-word@x")]
    journal = Journal(tmp_path / "journal.sqlite3")
    run = journal.begin("run", "team", "Count.", None, {"texts": [text for _, text in around]})
    for number, (_, text) in enumerate(around, 1):
        journal.add(run, Step(number, "message", "coder", "", 0.0, 0.0, None, {"text": text}))
    journal.close()
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir()).decode("latin-1")
    assert not [text for key, text in around if key in written]


def test_a_run_is_shown_as_it_was(folder: Folder) -> None:
    model = recording(
        folder.path / "r.json", ["```python\nopen('plot.html', 'w').write('<p>')\nprint(6 * 7)\n```", "It is 42."]
    )
    live = folder.command(*RUN, "--model", model)
    shown = folder.command("runs", "show")
    lines, lines_shown = (
        [line for line in text.splitlines() if re.match(r"│.*\b42\b", line)] for text in (live.stderr, shown.stdout)
    )
    assert lines == lines_shown[:1]  # The answer is on standard output.
    steps = [step for step in folder.run("runs", "show")["steps"] if step["kind"] != "message"]
    assert [step["kind"] for step in steps] == ["task", "model", "code", "model"]
    assert "Compute it." in str(steps[1]["request"]["messages"])
    result = next(step for step in steps if step["kind"] == "code")["result"]
    assert [name for name, value in result.items() if value == "42\n"] == ["output"]  # Once is enough.
    [artifact] = result["artifacts"]
    journal = Journal(folder.journal)
    assert journal.content(journal.find("last").id, artifact["hash"]) == b"<p>"


@pytest.mark.slow
def test_what_is_not_looked_at_for_secrets_is_not_kept(folder: Folder) -> None:
    code = "for n in range(3):\n    open(f'{n}.txt', 'w').write(f'{n}' + ' ://a' * 1_000_000)"
    model = recording(folder.path / "r.json", [f"```python\n{code}\nopen('9.txt', 'w').write('x')\n```", "Done."])
    done = folder.run(*RUN, "--model", model)
    assert [note for note in done["notices"] if note.startswith("Of 2 files that the code made")]
    step = next(step for step in folder.run("runs", "show")["steps"] if step["kind"] == "code")
    journal = Journal(folder.journal)
    run = journal.find("last").id
    sizes = [(len(journal.content(run, each["hash"])), each["size"]) for each in step["result"]["artifacts"]]
    assert sizes == [(5_000_001, 5_000_001), (0, 5_000_001), (0, 5_000_001), (1, 1)]


def test_the_page_of_a_run_has_all_of_it_and_loads_nothing(folder: Folder) -> None:
    script = "<script>alert(1)</script>"
    shows = f"class T:\n    def _repr_html_(self): return '<td>{script}'\nprint('first')\ndisplay(T())\nprint('then')"
    code = f"```python\nopen('plot.svg', 'w').write('<svg/>')\nprint('{script}')\n{shows}\n```"
    fails = "```python\nprint(1 / 0)\n```"
    model = recording(folder.path / "r.json", [fails, code, f"{script} ![x](http://example.com/x.png)"])
    folder.run(*RUN, "--model", model)
    assert folder.command("runs", "show", "--html", "page.html").returncode == 0
    page = (folder.path / "page.html").read_text()
    assert script not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    for part in ("ZeroDivisionError", "what has changed", "data:image/svg+xml;base64,PHN2Zy8+", "Compute it."):
        assert part in page
    assert re.search(
        r"first\n.*<iframe sandbox title=\"value-1.html\" srcdoc=\"[^\"]*&lt;td&gt;&lt;script&gt;.*</iframe>.*then\n",
        page,
        re.DOTALL,
    )
    assert not re.search(r"src=\"(?!data:)", page)
    refused = folder.command("runs", "show", "--html", "nowhere/page.html")
    assert (refused.returncode, "cannot be written" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_chats_files_and_instructions_are_kept_too(folder: Folder) -> None:
    (folder.path / "a.py").write_text("print(6 * 7)")
    assert folder.run("exec", "a.py")["succeeded"]
    assert "42" in folder.command("runs", "show").stdout
    model = recording(folder.path / "r.json", [FIRST, "It is set.", SECOND, "It is 42."])
    coderoom("chat", "code-act", "--model", model, cwd=folder.path, env=folder.env(None), stdin="Set x.\nAdd one.\n")
    coderoom("chat", "code-act", "--model", model, cwd=folder.path, env=folder.env(None), stdin="")  # Without a task.
    shown = folder.command("runs", "show").stdout
    assert "Set x." in shown
    assert "It is 42." in shown
    solve = ("solve", "Roman numerals.", "--model", f"replay:{ROOT / 'examples' / 'solve.replay.yaml'}")
    assert folder.run(*solve)["succeeded"]
    assert "to_roman" in folder.command("runs", "show").stdout
    listed = [(entry["command"], entry["state"]) for entry in folder.run("runs")["runs"]]
    assert listed == [("solve", "ok"), ("chat", "ok"), ("exec", "ok")]
    assert "has succeeded" in folder.command("resume").stderr
    exec_run = folder.run("runs")["runs"][2]["id"]
    assert "it ran code without a team" in folder.command("resume", exec_run).stderr


def test_a_recording_that_cannot_be_written_begins_no_run(folder: Folder) -> None:
    model = recording(folder.path / "r.json", ["Hello."])
    refused = folder.command(*RUN, "--model", model, "--record", "nowhere/r.jsonl")
    assert (refused.returncode, "cannot be written" in refused.stderr) == (2, True)
    assert folder.command("runs").stdout == f"There is no journal {str(folder.journal)!r} yet.\n"


@pytest.mark.slow
def test_runs_are_removed(folder: Folder) -> None:
    model = recording(folder.path / "r.json", ["Hello."])
    for _ in range(2):
        folder.run(*RUN, "--model", model)
    first, second = (entry["id"] for entry in folder.run("runs")["runs"])
    assert folder.command("runs", "diff", first, second).stdout == "The runs are equal.\n"
    folder.run(*RUN, "--model", recording(folder.path / "r.json", ["Goodbye."]))
    differ = folder.command("runs", "diff", first, "last")
    assert (differ.returncode, "-  Hello." in differ.stdout, "+  Goodbye." in differ.stdout) == (1, True, True)
    folder.run("runs", "rm", "last")
    assert folder.run("runs", "rm", first)["removed"] == [first]
    assert folder.run("runs", "prune", "--older", "1h")["removed"] == []
    assert folder.run("runs", "prune", "--older", "0s")["removed"] == [second]
    assert "30d" in folder.command("runs", "prune", "--older", "soon").stderr
    with sqlite3.connect(folder.journal) as database:
        assert [database.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("steps", "contents")] == [
            (0,),
            (0,),
        ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no database" * 100, "The file is damaged"),
        ("PRAGMA application_id = 7", "a database of another program"),
        ("PRAGMA application_id = 0x436F6452; PRAGMA user_version = 99", "a newer version of CodeRoom"),
    ],
)
def test_a_journal_that_cannot_be_used_loses_no_answer(folder: Folder, content: bytes | str, words: str) -> None:
    if isinstance(content, bytes):
        folder.journal.write_bytes(content)
    else:
        with sqlite3.connect(folder.journal) as database:
            database.executescript(content)
    before = folder.journal.read_bytes()
    model = recording(folder.path / "r.json", ["Hello."])
    run = folder.run(*RUN, "--model", model)
    assert (run["answer"], run["run"]) == ("Hello.", None)
    assert words in str(run["notices"])
    (folder.path / "a.py").write_text("print(42)")
    executed = folder.command("exec", "a.py")
    assert (executed.returncode, words in executed.stderr) == (0, True)
    listed = folder.command("runs")
    assert (listed.returncode, words in listed.stderr) == (3, True)
    assert folder.journal.read_bytes() == before


def test_a_required_journal_ends_the_run(folder: Folder) -> None:
    (folder.path / "coderoom").write_text("a file where a folder is needed")
    model = recording(folder.path / "r.json", [])
    env = {"XDG_STATE_HOME": str(folder.path), "CODEROOM_JOURNAL": "required"}
    done = coderoom(*RUN, "--model", model, cwd=folder.path, env=env)
    assert (done.returncode, "The journal" in done.stderr) == (3, True)
    assert coderoom(*RUN, "--no-journal", "--model", model, cwd=folder.path, env=env).returncode == 1


def test_a_journal_has_no_other_readers(folder: Folder) -> None:
    folder.run(*RUN, "--model", recording(folder.path / "r.json", ["Hello."]))
    assert folder.journal.stat().st_mode & 0o077 == 0


def test_a_step_costs_the_same_however_long_the_run_is(folder: Folder) -> None:
    from autogen_core.models import UserMessage

    from coderoom.runs.run_log import RunLog, conversations

    journal = Journal(folder.journal)
    log = RunLog(journal)
    log.begin("run", "t", "x", None, {})
    messages: list[UserMessage] = []
    windows = []
    for number in range(200):
        messages.append(UserMessage(content=f"message {number}", source="user"))
        aside = [UserMessage(content="Is it done?", source="user")] if number % 3 == 0 else []
        windows.append([*(messages if number < 100 else [messages[0], *messages[-20:]]), *aside])
        log.keep("model", {"messages": windows[-1]}, {"content": "x"}, 0.0, known=False)
    steps = list(journal.steps(str(log.run)))
    assert max(len(json.dumps(step.request)) for step in steps) < 250
    kept = conversations(steps)
    for step, window in zip(steps, windows, strict=True):
        texts = [json.loads(journal.content(str(log.run), name))["content"] for name in kept[step.number]]
        assert texts == [message.content for message in window]
    assert isinstance(steps[0], Step)


@pytest.mark.slow
def test_a_resumed_run_has_the_values_that_were_hidden(folder: Folder) -> None:
    line = "print('Contoso ${CUSTOMER} $${CUSTOMER} ${MY_TOKEN}')"
    code = f"```python\nopen('Contoso-report.txt', 'w').write('x')\n{line}\n```"
    team = YAML(typ="safe").load((ROOT / "coderoom/configs/shipped/code-act.yaml").read_text())
    coder = team["config"]["participants"][0]["config"]
    coder["system_message"] = "You work for ${CUSTOMER}."
    coder["model_client"]["config"]["api_key"] = "my-own-literal"
    with (folder.path / "team.yaml").open("w") as file:
        YAML().dump(team, file)
    run = ("run", "team.yaml", "Report.\nsk-abcdefghijklmnop1234", "--workspace", "work")
    with OpenAIServer([code, Failure(401, message="Incorrect API key.")]) as server:
        folder.run(*run, server=server, CUSTOMER="Contoso")
    kept = b"".join(file.read_bytes() for file in folder.path.glob("journal.sqlite3*"))
    assert b"Contoso" not in kept
    assert b"sk-abcdefghijklmnop1234" not in kept
    assert b"my-own-literal" not in kept
    text = (folder.path / "team.yaml").read_text()
    (folder.path / "team.yaml").write_text(f"{text}# Changed\n")
    refused = folder.command("resume", CUSTOMER="Contoso")
    assert "does not have the keys that were in it" in refused.stderr
    (folder.path / "team.yaml").write_text(text)
    assert line.replace("Contoso", "${CUSTOMER}") in str(folder.run("runs", "show")["steps"])
    with OpenAIServer(["Done."]) as server:
        assert folder.run("resume", server=server, CUSTOMER="Contoso", MY_TOKEN="a-secret-of-the-host")["succeeded"]
        assert line in server.requests[0].messages[2]["content"]
        assert server.requests[0].messages[3]["content"].startswith("Contoso ${CUSTOMER} $${CUSTOMER} ${MY_TOKEN}\n")
    assert [path.name for path in (folder.path / "work").glob("*.txt")] == ["Contoso-report.txt"]
