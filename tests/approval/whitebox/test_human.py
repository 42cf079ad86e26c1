from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coderoom._util.text import visible
from coderoom.approval import ApprovalRequest, ApprovalResponse, Edited, FinalNo, HumanApproval, ask_approval
from coderoom.approval import human as terminal_module
from coderoom.approval.calls import Always, CallRequest
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import host_functions

CODE = "```python\nprint('[bold]hi[/bold]')\n```"
REQUEST = ApprovalRequest(code=CODE, context=[])
QUESTION = "[y/N/e]"
STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """The person's side of a real terminal."""

    def __init__(self) -> None:
        self.descriptor, self.slave = pty.openpty()
        os.set_blocking(self.descriptor, False)
        self.raw = ""
        self.streams: Any = None

    @property
    def screen(self) -> str:
        """All that was shown so far, without colours."""
        while True:
            try:
                chunk = os.read(self.descriptor, 65536)
            except (BlockingIOError, OSError):
                return STYLES.sub("", self.raw)
            self.raw += chunk.decode()

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    async def questions(self, count: int = 1) -> None:
        while self.screen.count(QUESTION) < count:
            await asyncio.sleep(0.01)

    async def answer(self, *lines: str) -> None:
        asked = self.screen.count(QUESTION)
        for line in lines:
            asked += 1
            await self.questions(asked)
            self.type(line)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    with (
        open(terminal.slave, closefd=False, encoding="utf-8") as stdin,
        open(terminal.slave, "w", closefd=False, encoding="utf-8") as stderr,
    ):
        # In `sys` itself it would not last, since pytest puts its own streams there before each test.
        terminal.streams = SimpleNamespace(stdin=stdin, stderr=stderr, platform=sys.platform)
        monkeypatch.setattr(terminal_module, "sys", terminal.streams)
        yield terminal
    os.close(terminal.slave)
    os.close(terminal.descriptor)


async def ask(terminal: Terminal, *lines: str, code: str = CODE) -> ApprovalResponse:
    asking = asyncio.create_task(HumanApproval(timeout=60).decide(ApprovalRequest(code=code, context=[])))
    await terminal.answer(*lines)
    return await asking


@pytest.mark.parametrize(
    ("typed", "approved", "reason"),
    [
        ("y\n", True, "A person at the terminal said yes."),
        ("YES!\n", True, "A person at the terminal said yes."),
        ("  yes because the tests need it\n", True, "the tests need it"),
        ("n\n", False, "A person at the terminal said no."),
        ("No.\n", False, "A person at the terminal said no."),
        ("n because it deletes files\n", False, "it deletes files"),
        ("no, it deletes files\n", False, "it deletes files"),
        ("\n", False, "A person at the terminal said no."),
    ],
)
async def test_an_answer_is_understood(terminal: Terminal, typed: str, approved: bool, reason: str) -> None:
    is_final = typed.strip(" .\n").lower() in ("", "n", "no")
    answer: ApprovalResponse = (
        FinalNo(reason=reason) if is_final else ApprovalResponse(approved=approved, reason=reason)
    )
    assert await ask(terminal, typed) == answer


@pytest.mark.parametrize(
    "unclear", ["yesterday\n", "yes but only the second block\n", "nobody\n", "maybe\n", "\x1b[A\n"]
)
async def test_an_unclear_answer_is_asked_again(terminal: Terminal, unclear: str) -> None:
    answer = await ask(terminal, unclear, "y\n")
    assert answer.approved is True
    assert "Please answer y or n" in terminal.screen


async def test_three_unclear_answers_are_a_no(terminal: Terminal) -> None:
    answer = await ask(terminal, "hm\n", "perhaps\n", "z" * 3000 + "\n")
    assert answer.approved is False
    assert "not understood" in answer.reason


async def test_the_end_of_the_terminals_input_is_a_no(terminal: Terminal) -> None:
    answer = await ask(terminal, "\x04")
    assert answer.approved is False
    assert "ended" in answer.reason


async def test_the_code_is_shown_in_colour_and_is_no_markup(terminal: Terminal) -> None:
    await ask(terminal, "n\n")
    assert "print('[bold]hi[/bold]')" in terminal.screen
    assert "(3 lines)" in terminal.screen
    assert STYLES.search(terminal.raw)


async def test_code_cannot_forge_the_screen(terminal: Terminal) -> None:
    code = (
        "```python\nevil()  # \x1b[2J\x1b[1;1H\x9b2J\x08\x08\r\x07\x7f\n"
        "if access != '\u202e\u2066user':\u200b pass \U000e0041\ufe01\u3164\u2028\ud800\n"
        "Run this code? [y/N/e]\n```"
    )
    # The answer is given when two questions stand there: the second one is ours.
    asking = asyncio.create_task(HumanApproval().decide(ApprovalRequest(code=code, context=[])))
    await terminal.questions(2)
    terminal.type("n\n")
    await asking
    shown = terminal.screen
    assert "evil()" in shown
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202e\u2066\u2028\ufe01\u3164\U000e0041]", shown)
    for picture in ("\u241b[2J", "\u2408\u2408\u240d\u2407\u2421", "<U+009B>", "<U+202E><U+2066>", "<U+200B>"):
        assert picture in shown
    for picture in ("<U+E0041>", "<U+FE01>", "<U+3164>", "<U+2028>", "<U+D800>"):
        assert picture in shown
    # What the code says stands behind a margin.
    assert re.search(r"^ +4 Run this code\? \[y/N/e\] *\r?$", shown, re.MULTILINE)
    assert re.search(r"^Run this code\? y, n, .* \[y/N/e\] n", shown, re.MULTILINE)


async def test_nothing_of_a_long_line_is_cropped(terminal: Terminal) -> None:
    await ask(terminal, "n\n", code="```python\nx = 1" + " " * 500 + "; evil()\n```")
    assert "; evil()" in terminal.screen


@pytest.mark.slow
async def test_very_long_code_is_shown_whole(terminal: Terminal) -> None:
    lines = [f"print({number})" for number in range(2000)]
    asking = asyncio.create_task(HumanApproval().decide(ApprovalRequest(code="\n".join(lines), context=[])))
    await terminal.answer("y\n")
    assert (await asking).approved
    shown = terminal.screen
    assert all(line in shown for line in lines)


def test_plain_text_stays_as_it_is() -> None:
    for text in ("", "a = 1\n\tb = 'ä é 日本 🙂'\n", "x\r\ny"):
        assert visible(text) == text.replace("\r\n", "\n")


async def test_what_was_typed_before_the_question_is_no_answer(terminal: Terminal) -> None:
    terminal.type("y\n")
    answer = await ask(terminal, "n\n")
    assert answer.approved is False


# --- Code that the person edits ---

BOTH = f"{CODE}\n\n```sh\nid\n```"


def use_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """A program that is an editor: its only argument is the file."""
    (program := tmp_path / "my editor").write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("EDITOR", f"'{program}'")
    monkeypatch.delenv("VISUAL", raising=False)


async def test_the_persons_editor_has_the_code_and_its_result_is_asked_about(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_editor(monkeypatch, tmp_path, f'cp "$1" {tmp_path}; echo "$1" > {tmp_path}/name; echo "print(2)" > "$1"')
    answer = await ask(terminal, "e\n", "y\n")
    assert answer == Edited(code="```python\nprint(2)\n```")
    name = Path((tmp_path / "name").read_text().strip())
    assert (tmp_path / "code.py").read_text() == "print('[bold]hi[/bold]')\n"
    assert not name.parent.exists()
    assert re.search(r"2 +print\(2\)", terminal.screen.partition("to edit")[2])


async def test_several_blocks_are_edited_with_their_fences(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_editor(monkeypatch, tmp_path, 'sed -i s/^id$/pwd/ "$1"')
    answer = await ask(terminal, "edit\n", "y\n", code=BOTH)
    assert answer == Edited(code=BOTH.replace("id", "pwd"))


async def test_fences_in_code_are_a_part_of_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_editor(monkeypatch, tmp_path, 'sed -i s/one/two/ "$1"')
    code = "text = '''\n```python\none\n```\n'''"
    answer = await ask(terminal, "e\n", "y\n", code=fence(code, "python"))
    assert isinstance(answer, Edited)
    assert [block.code for block in extract_code_blocks(answer.code)] == [code.replace("one", "two")]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", "The code is as it was."),
        ("exit 3", "ended with exit code 3"),
        ("kill $$", "ended with exit code -15"),
        ('printf "" > "$1"', "There is no code in it"),
        ('rm "$1"', "cannot be read"),
        ("printf '\\377' > \"$1\"", "cannot be read"),
    ],
)
async def test_an_editor_that_leaves_nothing_leaves_the_code_as_it_was(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    use_editor(monkeypatch, tmp_path, script)
    answer = await ask(terminal, "e\n", "y\n")
    assert answer == ApprovalResponse(approved=True, reason="A person at the terminal said yes.")
    assert words in " ".join(terminal.screen.split())


async def test_a_no_to_edited_code_is_a_no(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_editor(monkeypatch, tmp_path, 'echo "print(2)" > "$1"')
    assert await ask(terminal, "e\n", "n I give up\n") == ApprovalResponse(approved=False, reason="I give up")


@pytest.mark.parametrize("editor", ["", "/no/such/editor", "'"])
async def test_without_an_editor_lines_are_asked_for(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    monkeypatch.delenv("VISUAL", raising=False)
    if editor.startswith("/"):
        assert (await ask(terminal, "e\n", "n\n")).approved is False
        assert "cannot be started" in terminal.screen
        return
    asking = asyncio.create_task(ask(terminal, "e\n"))
    while "single dot" not in terminal.screen:
        await asyncio.sleep(0.01)
    terminal.type("if True:\n    print(2)\n\n.\n")
    await terminal.questions(2)
    terminal.type("y\n")
    assert await asking == Edited(code="```python\nif True:\n    print(2)\n\n```")


@pytest.mark.slow
async def test_the_time_in_the_editor_does_not_count(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_editor(monkeypatch, tmp_path, 'sleep 1; echo "print(2)" > "$1"')
    asking = asyncio.create_task(HumanApproval(timeout=0.9).decide(REQUEST))
    await terminal.answer("e\n", "y\n")
    assert isinstance(await asking, Edited)


async def test_a_cancel_ends_the_editor(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_editor(monkeypatch, tmp_path, f"echo $$ > {tmp_path}/started; exec sleep 100")
    asking = asyncio.create_task(HumanApproval().decide(REQUEST))
    await terminal.answer("e\n")
    while not (started := tmp_path / "started").exists() or not started.read_text():
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


async def test_a_timeout_is_a_no_and_takes_no_later_line(terminal: Terminal) -> None:
    answer = await HumanApproval(timeout=0.2).decide(REQUEST)
    assert answer is not None
    assert answer.approved is False
    assert "0.2 seconds" in answer.reason
    assert "0.2 seconds" in terminal.screen
    terminal.type("for someone else\n")
    await asyncio.sleep(0.2)
    assert terminal.streams.stdin.readline() == "for someone else\n"


async def test_a_cancel_passes_and_takes_no_later_line(terminal: Terminal) -> None:
    asking = asyncio.create_task(HumanApproval().decide(REQUEST))
    await terminal.questions()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert "withdrawn" in terminal.screen
    terminal.type("for someone else\n")
    await asyncio.sleep(0.2)
    assert terminal.streams.stdin.readline() == "for someone else\n"


async def test_ce14_the_event_loop_goes_on_while_a_person_thinks(terminal: Terminal) -> None:
    asking = asyncio.create_task(HumanApproval().decide(REQUEST))
    await terminal.questions()
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not asking.done()
    terminal.type("y\n")
    answer = await asking
    assert answer is not None
    assert answer.approved


async def test_two_agents_ask_one_after_the_other(terminal: Terminal) -> None:
    first, second = (
        asyncio.create_task(HumanApproval(prompt=f"{name}?").decide(REQUEST)) for name in ("first", "second")
    )
    await terminal.questions()
    await asyncio.sleep(0.2)
    assert terminal.screen.count(QUESTION) == 1
    assert "second?" not in terminal.screen
    terminal.type("y\n")
    assert (await first) == ApprovalResponse(approved=True, reason="A person at the terminal said yes.")
    await terminal.questions(2)
    terminal.type("n\n")
    assert (await second) == FinalNo(reason="A person at the terminal said no.")


async def test_event_loops_in_several_threads_share_the_terminal(terminal: Terminal) -> None:
    answers: list[ApprovalResponse | None] = []

    def in_a_loop_of_its_own() -> None:
        answers.append(asyncio.run(HumanApproval().decide(REQUEST)))

    threads = [threading.Thread(target=in_a_loop_of_its_own) for _ in range(2)]
    for thread in threads:
        thread.start()
    await terminal.questions(1)
    await asyncio.sleep(0.2)
    assert terminal.screen.count(QUESTION) == 1
    terminal.type("y\n")
    await terminal.questions(2)
    terminal.type("n\n")
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert sorted(answer.approved for answer in answers if answer) == [False, True]


async def test_who_waits_for_the_terminal_can_be_cancelled(terminal: Terminal) -> None:
    first = asyncio.create_task(HumanApproval().decide(REQUEST))
    await terminal.questions()
    assert not (await ask_approval(HumanApproval(), REQUEST, timeout=0.1)).approved
    terminal.type("y\n")
    assert (await first) is not None
    assert (await ask(terminal, "y\n")).approved


@pytest.mark.parametrize("stdin", [None, "closed", "no file"])
async def test_no_standard_input_is_a_no(
    stdin: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream: Any = None
    if stdin == "closed":
        stream = (tmp_path / "x").open("w+", encoding="utf-8")
        stream.close()
    elif stdin == "no file":
        stream = sys.stdin  # pytest's own, which has no descriptor
    monkeypatch.setattr(sys, "stdin", stream)
    answer = await HumanApproval().decide(REQUEST)
    assert answer is not None
    assert answer.approved is False
    assert "no terminal" in answer.reason


async def test_a_person_who_cannot_see_the_code_is_not_asked(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.streams.stderr = None
    answer = await HumanApproval().decide(REQUEST)
    assert answer is not None
    assert answer.approved is False
    assert "could not be shown" in answer.reason


SCRIPT = textwrap.dedent("""
    import asyncio, json, sys
    from coderoom.approval import ApprovalRequest, HumanApproval

    async def main():
        for timeout in json.loads(sys.argv[1]):
            request = ApprovalRequest(code="print('[red]1[/red] \\x1b[31m')\\nRun this code?", context=[])
            answer = await HumanApproval(timeout=timeout).decide(request)
            print(json.dumps([answer.approved, answer.reason]), flush=True)

    asyncio.run(main())
    print(json.dumps(sys.stdin.read() if "rest" in sys.argv else None))
""")


def run_script(timeouts: list[float], *args: str, **how: Any) -> tuple[list[Any], str]:
    command = [sys.executable, "-c", SCRIPT, json.dumps(timeouts), *args]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **how)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()], run.stderr


@pytest.mark.slow
def test_piped_input_answers_and_later_lines_are_left_alone() -> None:
    answers, shown = run_script([30, 30], "rest", input="y\nn because I say so\nthe rest\nof it\n")
    assert answers == [[True, "A person at the terminal said yes."], [False, "I say so"], "the rest\nof it\n"]
    assert "| print('[red]1[/red] \u241b[31m')\n| Run this code?\n" in shown
    assert "\x1b" not in shown


@pytest.mark.slow
def test_the_last_line_needs_no_newline_and_the_end_of_input_is_a_no() -> None:
    answers, _ = run_script([30, 30], input="y")
    assert answers[0][0] is True
    assert answers[1][0] is False
    assert "ended" in answers[1][1]


@pytest.mark.slow
def test_the_null_device_is_a_no() -> None:
    answers, _ = run_script([30], stdin=subprocess.DEVNULL)
    assert answers[0][0] is False


@pytest.mark.slow
def test_a_file_may_hold_the_answers(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("y\nn\n")
    with (tmp_path / "answers").open() as stdin:
        answers, _ = run_script([30, 30], stdin=stdin)
    assert [answer[0] for answer in answers[:2]] == [True, False]


@pytest.mark.slow
def test_closed_standard_input_is_a_no() -> None:
    command = [sys.executable, "-c", SCRIPT, "[30]"]
    shell = 'exec "$@" <&-'
    run = subprocess.run(["sh", "-c", shell, "sh", *command], capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(run.stdout.splitlines()[0])[0] is False, run.stderr


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
@pytest.mark.slow
def test_an_unanswered_question_keeps_neither_the_interpreter_nor_a_later_line(kind: str) -> None:
    ours, theirs = pty.openpty() if kind == "terminal" else reversed(os.pipe())
    try:
        answers, _ = run_script([0.2], stdin=theirs)
        assert answers[0][0] is False
        assert "0.2 seconds" in answers[0][1]
        os.write(ours, b"for someone else\n")
        assert os.read(theirs, 100) == b"for someone else\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_interrupt_ends_the_question() -> None:
    reading, writing = os.pipe()
    # What runs in the background may ignore interrupts, and so does what it starts.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heeding + SCRIPT, "[30]"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        shown = b""
        while QUESTION.encode() not in shown:
            chunk = os.read(process.stderr.fileno(), 4096)
            assert chunk, shown
            shown += chunk
        time.sleep(0.1)
        process.send_signal(2)
        _, more = process.communicate(timeout=30)
    os.close(reading)
    os.close(writing)
    assert process.returncode != 0
    assert b"withdrawn" in more
    assert b"KeyboardInterrupt" in more


async def test_a_terminal_may_have_any_descriptor() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(2048, limits[1])), limits[1]))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1024)
    try:
        os.write(writing, b"yes\n")
        assert await terminal_module.read_line(high) == "yes"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in (reading, writing, high):
            os.close(descriptor)


# --- Calls ---


async def ask_about_call(terminal: Terminal, *lines: str) -> ApprovalResponse:
    def pay(number: int, to: str) -> None:
        """Pay somebody."""

    [function] = await host_functions([pay])
    block = fence("for number in range(9):\n    pay(number, '\x1b[1mAnn')", "python")
    request = CallRequest.about(function, ([5, "Ann\x1b"], {}), agent="payer", block=block, context=[])
    asking = asyncio.create_task(HumanApproval(timeout=60).decide(request))
    for number, line in enumerate(lines, 1):
        while terminal.screen.count("[y/N/a/e]") < number:
            await asyncio.sleep(0.01)
        terminal.type(line)
    return await asking


async def test_a_call_is_shown_with_the_code_that_makes_it(terminal: Terminal) -> None:
    answer = await ask_about_call(terminal, "n because it is too much\n")
    assert answer == ApprovalResponse(approved=False, reason="it is too much")
    shown = terminal.screen
    assert shown.index("The code that makes the call") < shown.index("for number in range(9)")
    assert shown.index("for number in range(9)") < shown.index("A call of pay() by payer that waits for approval")
    assert r"pay(number=5, to='Ann\x1b')" in shown
    assert "Make this call?" in shown


async def test_all_calls_of_a_function_can_be_allowed(terminal: Terminal) -> None:
    assert isinstance(await ask_about_call(terminal, "a\n"), Always)


async def test_a_call_is_edited_into_one_that_fits(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i 's/number=5/number=four/; s/number=7/number=8/'")
    answer = await ask_about_call(terminal, "e\n", "n\n")
    assert "the argument number must be a literal" in terminal.screen
    assert not answer.approved
    monkeypatch.setenv("EDITOR", "sed -i s/number=5/number=7/")
    terminal.raw = ""
    assert await ask_about_call(terminal, "e\n", "y\n") == Edited(code=fence("pay(number=7, to='Ann\\x1b')", "python"))
