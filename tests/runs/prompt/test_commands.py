"""What one can say in a chat besides tasks: over the real command, with recorded models and commands from a pipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from coderoom.configs import ReplayModel, dump_team
from coderoom.runs import Journal
from tests.support.commands import ROOT, chat_process, coderoom, environment, recording
from tests.support.screen import Screen

pytestmark = pytest.mark.slow

SETS = ["```python\nx = 41\nopen('a.txt', 'w').write('one\\n')\nprint('x is', x)\n```", "It is set."]
ADDS = ["```python\nx += 1\nopen('a.txt', 'a').write('two\\n')\nopen('b.txt', 'w').close()\n```", "One more."]
SHOWS = ["```python\nprint('x is now', x)\n```", "That is it."]


class Chats:
    """Chats in one folder, with one journal and a working folder `work`."""

    def __init__(self, path: Path) -> None:
        self.path, self.work, self.journal = path, path / "work", Journal(path / "journal")
        self.env = {"CODEROOM_JOURNAL": str(path / "journal"), "COLUMNS": "200"}

    def say(
        self, *lines: str, replies: Sequence[str] = (), team: str = "code-act", more: Sequence[str] = (), code: int = 0
    ) -> str:
        """Give lines to a chat, and return what it shows after the first task."""
        model = recording(self.path / "replies.json", replies)
        options = ["--model", model, "--workspace", "work", *more]
        done = coderoom("chat", team, *options, cwd=self.path, env=self.env, stdin="\n".join(lines) + "\n")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def requests(self) -> list[str]:
        """The last message of each request to a model in the last chat."""
        shown = coderoom("runs", "show", "last", "--json", cwd=self.path, env=self.env)
        steps = json.loads(shown.stdout)["steps"]
        return [step["request"]["messages"][-1] for step in steps if step["kind"] == "model"]


@pytest.fixture
def chats(tmp_path: Path) -> Chats:
    return Chats(tmp_path)


def test_undo_brings_back_conversation_variables_and_files(chats: Chats) -> None:
    shown = chats.say("Set x.", "Add one.", "/undo", "/vars", "Show x.", replies=[*SETS, *ADDS, *SHOWS])
    assert "As before the task 'Add one.': conversation, variables and files." in shown
    assert "x is now 41" in shown
    assert (chats.work / "a.txt").read_text() == "one\n"
    assert not (chats.work / "b.txt").exists()
    text = json.dumps(chats.requests()[-1])
    assert "x is now 41" in text
    assert "Add one." not in text
    told = coderoom("runs", "show", "last", cwd=chats.path, env=chats.env).stdout
    assert [line.strip() for line in told.splitlines()].count("The person has undone this task.") == 1
    page = coderoom("runs", "show", "last", "--html", "-", cwd=chats.path, env=chats.env).stdout
    assert "undone by the person" in page


def test_undo_goes_back_task_by_task_to_the_beginning(chats: Chats) -> None:
    lines = ["Set x.", "Add one.", "/undo", "/undo", "/vars", "/files", "/undo"]
    shown = chats.say(*lines, replies=[*SETS, *ADDS]).partition("As before the task 'Set x.'")[2]
    assert "There are no variables." in shown
    assert "No files." in shown
    assert "There is no task to undo" in shown


def test_undo_does_not_take_what_a_person_has_changed_since(chats: Chats) -> None:
    model = recording(chats.path / "replies.json", [*SETS, *ADDS])
    arguments, pipe = ["code-act", "--model", model, "--workspace", "work"], subprocess.PIPE
    with chat_process(
        *arguments, cwd=chats.path, env=environment(chats.env), stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print("Set x.\n/tokens", file=process.stdin, flush=True)
        for line in process.stdout:
            if "last task" in line:
                break
        (chats.work / "a.txt").write_text("mine\n")
        print("/undo\n/help", file=process.stdin, flush=True)
        shown = ""
        for line in process.stdout:
            shown += line
            if "Lists the commands." in line:
                break
        assert "others have changed a.txt" in shown
        assert (chats.work / "a.txt").read_text() == "mine\n"
        process.communicate("/undo force\n", timeout=60)
    assert not (chats.work / "a.txt").exists()


def test_what_a_person_runs_is_in_the_session_and_told_to_the_model(chats: Chats) -> None:
    lines = ["Set x.", "/run x = 7", "!echo from the shell", "Show x."]
    shown = chats.say(*lines, replies=[*SETS, *SHOWS])
    assert "\nfrom the shell\n" in shown
    assert "x is now 7" in shown
    asked = chats.requests()[2]
    assert "x = 7" in asked
    assert "from the shell" in asked


def test_code_of_a_person_that_fails_says_how_and_the_chat_goes_on(chats: Chats) -> None:
    shown = chats.say("/run 1 / 0", "Set x.", replies=SETS)
    assert "ZeroDivisionError" in shown
    assert "error · exit code 1" in shown
    assert "It is set." in shown


def test_ctrl_c_ends_a_persons_code_only(chats: Chats) -> None:
    model = recording(chats.path / "replies.json", [*SETS, *SHOWS])
    arguments, pipe = ["code-act", "--model", model, "--workspace", "work"], subprocess.PIPE
    with chat_process(
        *arguments, cwd=chats.path, env=environment(chats.env), stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None
        print(
            "Set x.\n/run open('began', 'w').close(); exec('while True: pass')\nShow x.", file=process.stdin, flush=True
        )
        while process.poll() is None and not (chats.work / "began").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert "The code was ended." in shown
    assert "x is now 41" in shown


def test_changes_of_the_folder_since_the_task_and_the_chat_began(chats: Chats) -> None:
    chats.work.mkdir()
    (chats.work / "old.txt").write_text("old\n")
    (chats.work / ".pytest_cache").mkdir()
    (chats.work / ".pytest_cache" / "README.md").touch()
    shown = chats.say("Set x.", "Add one.", "/diff", "/files", "/diff chat", replies=[*SETS, *ADDS])
    task, _, rest = shown.rpartition("answer")[2].partition("old.txt")
    assert "+two" in task
    assert "+one" not in task
    assert re.search(r"a.txt +8 bytes +new", task)
    assert "+one" in rest
    assert "README.md" not in shown


def test_an_overlay_is_shown_undone_and_applied(chats: Chats) -> None:
    chats.work.mkdir()
    (chats.work / "a.txt").write_text("zero\n")
    (chats.path / "notes.txt").touch()
    lines = ["Set x.", "Add one.", "/undo", "/file notes.txt", "/files", "/diff", "!cat a.txt", "/apply", "/undo"]
    shown = chats.say(*lines, replies=[*SETS, *ADDS], more=["--workspace-mode", "overlay"])
    assert "  M a.txt  +1 -1\n  A notes.txt\n" in shown
    assert "-zero\n+one\n" in shown
    assert "+two" not in shown
    assert (chats.work / "a.txt").read_text() == "one\n"
    assert "There is no task to undo" in shown
    assert "is there at once" in chats.say("/apply")


def test_a_file_goes_with_the_next_task(chats: Chats) -> None:
    (chats.path / "notes.txt").write_text("in it")
    shown = chats.say("/file notes.txt", "/file missing.txt", "Set x.", "Add one.", replies=[*SETS, *ADDS])
    assert "There is no file 'missing.txt'." in shown
    assert (chats.work / "notes.txt").read_text() == "in it"
    first, *others = chats.requests()
    assert "Files in the working folder: notes.txt" in first
    assert not any("notes.txt" in each for each in others)


def test_files_that_a_task_mentions_go_with_it_from_where_they_are(chats: Chats) -> None:
    (chats.work / "data").mkdir(parents=True)
    (chats.work / "data" / "a.csv").write_text("1,2")
    (chats.path / "notes.txt").write_text("in it")
    chats.say("Look at @notes.txt and @work/data/a.csv for me@home.org or @nobody.", replies=SETS)
    first = chats.requests()[0]
    assert "Files in the working folder: notes.txt, data/a.csv" in first
    assert sorted(path.name for path in chats.work.iterdir()) == ["a.txt", "data", "notes.txt"]


def test_an_unknown_command_reaches_no_model(chats: Chats) -> None:
    shown = chats.say("/fiel x", "/run", "/vars now", "//usr is full", replies=SETS)
    assert "did you mean /file?" in shown
    assert "Write /run CODE." in shown
    assert "/vars takes nothing after it." in shown
    assert "/usr is full" in chats.requests()[0]


def test_tokens_of_what_was_undone_count(chats: Chats) -> None:
    shown = chats.say("Set x.", "Add one.", "/undo", "/tokens", "/cost", replies=[*SETS, *ADDS])
    last, whole = re.findall(r"^coder +([\d,]+) \(.*?\) +([\d,]+) \(", shown, re.MULTILINE)[-1]
    assert int(last) < int(whole)
    assert "not known" in shown


def test_the_conversation_is_saved_once_as_markdown(chats: Chats) -> None:
    shown = chats.say("Set x.", "Add one.", "/undo", "/save out.md", "/save out.md", replies=[*SETS, *ADDS])
    assert "There is a file 'out.md' already" in shown
    text = (chats.path / "out.md").read_text()
    assert "## Set x." in text
    assert text.count("Set x.") == text.count("**Answer**") == 1
    assert "```python\nx = 41" in text
    assert "Add one." not in text


def test_the_suffix_of_the_file_chooses_a_script_or_a_notebook(chats: Chats) -> None:
    chats.say("Set x.", "/save out.py", "/save out.ipynb", replies=SETS)
    assert "x = 41" in (chats.path / "out.py").read_text()
    assert json.loads((chats.path / "out.ipynb").read_text())["nbformat"] == 4
    model = recording(chats.path / "replies.json", SETS)
    lines = "Set x.\n/save other.py\n"
    options = ["--model", model, "--no-journal"]
    shown = coderoom("chat", "code-act", *options, cwd=chats.path, env=chats.env, stdin=lines).stdout
    assert "A notebook or a script is made of the journal" in shown


def test_a_team_without_a_session_says_so_in_a_line(chats: Chats) -> None:
    dump_team(
        RoundRobinGroupChat([AssistantAgent("a", ReplayModel(["Hello.", "Again."]))], max_turns=1),
        chats.path / "team.yaml",
    )
    lines = "Hi.\n/run 1\n/vars\n/files\n/undo\nHi again.\n"
    done = coderoom("chat", "team.yaml", cwd=chats.path, env=chats.env, stdin=lines)
    assert done.stdout.count("runs code in a session: choose a team") == 2
    assert "has no folder of this machine" in done.stdout
    assert "As before the task 'Hi.': conversation." in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_help_and_the_docs_name_every_command(chats: Chats) -> None:
    shown, docs = chats.say("/help", replies=[]), (ROOT / "docs" / "chat.md").read_text()
    named = re.findall(r"^(/\w+|!)", shown, re.MULTILINE)
    assert {"/undo", "!", "/help"} <= set(named)
    assert [name for name in named if f"| `{name}" not in docs] == []


def test_at_a_terminal_ctrl_c_ends_a_persons_code_and_commands_wait_for_it(chats: Chats) -> None:
    screen = Screen(chats.path, SHOWS)
    try:
        screen.type("/run x = 5; open('began', 'w').close(); exec('while True: pass')", "Enter")
        screen.until(lambda: (chats.path / "w" / "began").exists())
        screen.type("/vars", "Enter", "C-c")
        screen.until("x  int  5")
        assert screen.text.index("The code was ended.") < screen.text.index("x  int  5")
        screen.type("Show x.", "Enter")
        screen.until("x is now 5")
    finally:
        screen.end()


ENDLESS = "while True: pass"
DEAF = "import itertools, collections\ncollections.deque(itertools.repeat(0), maxlen=0)"


@pytest.mark.parametrize(
    ("loop", "left", "restored"),
    [(ENDLESS, "x  int  0", "conversation, variables and files."), (DEAF, "x  int  41", "conversation and files.")],
)
def test_a_task_that_ctrl_c_has_ended_is_undone_after_a_look_at_the_session(
    chats: Chats, loop: str, left: str, restored: str
) -> None:
    code = f"```python\nx = 0\nopen('b.txt', 'w').close()\n{loop}\n```"
    screen = Screen(chats.path, [*SETS, code])
    try:
        screen.type("Set x.", "Enter")
        screen.until("It is set.")
        screen.type("Loop.", "Enter")
        screen.until(lambda: (chats.path / "w" / "b.txt").exists())
        screen.type("C-c")
        screen.until("cancelled ·")
        screen.type("/vars", "Enter")
        screen.until(left)
        assert ("runs the code of earlier tasks again" in screen.text) is (loop is DEAF)
        screen.type("/undo", "Enter")
        screen.until(f"As before the task 'Loop.': {restored}")
        assert not (chats.path / "w" / "b.txt").exists()
        assert (chats.path / "w" / "a.txt").read_text() == "one\n"
        screen.type("/vars", "Enter")
        screen.until(lambda: screen.text.count("x  int  41") == 1 + (loop is DEAF))
    finally:
        screen.end()
