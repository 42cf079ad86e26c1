"""The first run without a model and a key: a question at a terminal, the keyring, and files of variables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import coderoom, coderoom_process
from tests.support.openai_server import OpenAIServer
from tests.support.terminals import in_terminal

MODEL = "gpt-4o-2024-08-06"
KEY = "key-of-a-person-1234567890"
# A keyring of the real library, which has its keys in a file.
KEYRING = """\
import json, pathlib
from keyring.backend import KeyringBackend

FILE = pathlib.Path(__file__).with_name("keys.json")

class Keyring(KeyringBackend):
    priority = 1
    def get_password(self, service, name):
        return json.loads(FILE.read_text()).get(f"{service}/{name}") if FILE.exists() else None
    def set_password(self, service, name, key):
        FILE.write_text(json.dumps({f"{service}/{name}": key}))
"""


def first_env(folder: Path) -> dict[str, str]:
    return {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "CODEROOM_JOURNAL": str(folder / "journal.sqlite3"),
        "PYTHONPATH": str(folder / "keyrings"),
        "PYTHON_KEYRING_BACKEND": "kept_in_a_file.Keyring",
        "PYTHONWARNINGS": "",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "keyrings").mkdir()
    (tmp_path / "keyrings" / "kept_in_a_file.py").write_text(KEYRING)
    return tmp_path


@pytest.mark.slow
def test_the_first_run_asks_and_the_next_ones_know(folder: Path) -> None:
    with OpenAIServer(["Hello.", "Hello again."]) as server:
        answers = {
            "leave it: ": "6",
            "/v1: ": server.base_url.removeprefix("http://").removesuffix("/v1"),
            "needs none): ": "refused",
            "Once more:\r\nKey (not shown; nothing if it needs none): ": KEY,
            f"[{MODEL}]: ": "",
            "[Y/n]: ": "",
        }
        code, shown = in_terminal([sys.executable, "-m", "coderoom", "ask", "Hi."], folder, first_env(folder), answers)
        again = coderoom_process("ask", "Hi.", cwd=folder, env=first_env(folder))
    assert code == 0, shown
    assert shown.endswith("Hello.\r\n")
    assert (again.returncode, again.stdout) == (0, "Hello again.\n"), again.stderr
    assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {KEY}"] * 2
    config = (folder / "config" / "coderoom" / "config.yaml").read_text()
    assert config == f"model: {server.base_url}#{MODEL}\nkeyring: CODEROOM_API_KEY\n"
    assert KEY not in shown
    files = [file for file in folder.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
    assert files == [folder / "keyrings" / "keys.json"]


@pytest.mark.slow
def test_a_person_who_names_no_service_sees_what_is_missing(folder: Path) -> None:
    command = [sys.executable, "-m", "coderoom", "run", "code-act", "Hi."]
    code, shown = in_terminal(command, folder, first_env(folder), {"leave it: ": ""})
    assert code == 3
    assert "OPENAI_API_KEY" in shown
    assert not (folder / "config").exists()


def test_without_a_terminal_nobody_is_asked(tmp_path: Path) -> None:
    done = coderoom("ask", "Hi.", cwd=tmp_path, stdin="1\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert "set OPENAI_API_KEY" in done.stderr
    assert coderoom("models", "--setup", cwd=tmp_path, stdin="1\n").returncode == 2


@pytest.mark.slow
def test_a_keyring_without_the_key_says_so_and_a_model_that_needs_none_answers(folder: Path) -> None:
    config = folder / "config" / "coderoom" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("keyring: OPENAI_API_KEY\n")
    (folder / "r.json").write_text('{"replies": ["Hello."]}')
    done = coderoom_process("ask", "Hi.", "-m", "replay:r.json", cwd=folder, env=first_env(folder))
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert "The keyring has no key OPENAI_API_KEY" in done.stderr


@pytest.mark.slow
def test_a_file_of_variables_is_read_where_the_user_says_so(tmp_path: Path) -> None:
    config = tmp_path / "config" / "coderoom" / "config.yaml"
    config.parent.mkdir(parents=True)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    with OpenAIServer(["One.", "Two.", "Three."]) as server:
        key = f"export OPENAI_API_KEY='{KEY}'  # mine"
        (tmp_path / ".env").write_text(f"{key}\nOPENAI_BASE_URL={server.base_url}\nCODEROOM_MODEL={MODEL}\n")
        unasked = coderoom("ask", "Hi.", cwd=tmp_path, env=env)
        config.write_text("model: gpt-4o-mini\n")
        by_option = coderoom("ask", "Hi.", "--env-file", ".env", cwd=tmp_path, env=env)
        set_before = coderoom("ask", "Hi.", "--env-file", ".env", cwd=tmp_path, env=env | {"OPENAI_API_KEY": "other"})
        config.write_text(f"env_file: {tmp_path / '.env'}\n")
        by_config = coderoom("ask", "Hi.", cwd=tmp_path, env=env)
    assert unasked.returncode == 3  # It may be that of a repository of somebody else.
    assert [each.stdout for each in (by_option, set_before, by_config)] == ["One.\n", "Two.\n", "Three.\n"]
    keys = [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]
    assert keys == [KEY, "other", KEY]
    assert {request.body["model"] for request in server.requests} == {MODEL}


def test_a_file_of_variables_that_is_not_there_is_a_wrong_request(tmp_path: Path) -> None:
    done = coderoom("ask", "Hi.", "--env-file", "missing.env", cwd=tmp_path)
    assert done.returncode == 2
    assert "The file of variables 'missing.env' cannot be read: No such file" in done.stderr
