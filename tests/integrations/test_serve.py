"""A team behind OpenAI's protocol, used by the openai package."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from coderoom.runs import Journal
from tests.approval.test_killed import wait_for
from tests.support.commands import ROOT, coderoom, environment, recording
from tests.support.openai_server import Failure, OpenAIServer, Reply, Request

KEYS = "key-of-one,key-of-other"
DRAWING = """
import os
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.savefig('a [b](c) ü.png')
plt.close()
open('data.html', 'w').write('<script>alert(1)</script>')
open('fake.png', 'w').write('<svg onload=alert(1)>')
os.symlink('/etc/passwd', 'passwd.txt')
print('drawn')
"""
LINK = re.compile(r"(!?)\[([^\]]*)\]\((\S*)\)")


def model(request: Request) -> Reply | Failure:
    """Counts in a session, writes a file, and answers what the code has printed."""
    said = str(request.messages[-1])
    if "Refuse." in said:
        return Failure(401, message="Incorrect API key.")
    if "Wait." in said:
        return Reply("```python\nimport time; print('waiting', flush=True); time.sleep(50)\n```")
    if "Again." in said or "Count." in said:
        writes = "" if "No file." in said else "open(f'{n}.txt', 'w').write('made')\n"
        code = f"n = globals().get('n', 0) + 1\n{writes}print('n is', n)"
        return Reply(f"```python\n{code}\n```")
    if "Draw." in said:
        return Reply(f"```python\n{DRAWING}\n```")
    if "n is" not in said:
        return Reply("Drawn.")
    return Reply(f"Counted: {said.rpartition('n is ')[2][:1]}.")


@contextmanager
def serving(folder: Path, *arguments: str, killed: bool = False, **how: Any) -> Iterator[str]:
    """A server in a process of its own, which is ended or killed, and the URL of its API."""
    with process_serving(folder, *arguments, **how) as (url, server):
        yield url
        if killed:
            server.kill()


@contextmanager
def process_serving(
    folder: Path, *arguments: str, respond: Any = model, team: str = "code-act"
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with OpenAIServer(respond=respond) as behind:
        env = {"CODEROOM_TOKEN": KEYS, "OPENAI_API_KEY": "test-key-1234", "OPENAI_BASE_URL": behind.base_url}
        # AutoGen warns of each tool in a team file.
        env |= {"CODEROOM_MODEL": "gpt-4o-2024-08-06", "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-m", "coderoom", "serve", team, "--port", "0", *arguments]
        with subprocess.Popen(command, cwd=folder, env=environment(env), stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield server.stdout.readline().strip(), server
            finally:
                server.terminate()


def client_of(url: str, key: str = "key-of-one") -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def words(answer: Any) -> str:
    """An answer without its links."""
    said: str = answer.choices[0].message.content
    return said.partition("\n\n[")[0]


def answered(conversation: list[Any], text: str) -> list[Any]:
    """A conversation with a message of the user at its end."""
    return [*conversation, {"role": "user", "content": text}]


def continued(client: openai.OpenAI, conversation: list[Any], **more: Any) -> list[Any]:
    """A conversation with the server's answer at its end."""
    given: Any = client.chat.completions.create(model="x", messages=conversation, **more)
    return [*conversation, {"role": "assistant", "content": given.choices[0].message.content}]


def answer_in(journal: Journal, answer: str) -> None:
    """Answer the question of the last run, as its page does."""
    run = journal.find("last").id
    wait_for(lambda: bool(journal.questions(run)))
    journal.answer(run, journal.questions(run)[0].id, answer)
    journal.close()


@pytest.mark.slow
def test_a_conversation_keeps_its_variables_and_its_folder(tmp_path: Path) -> None:
    with serving(tmp_path) as url, client_of(url) as one, client_of(url, "key-of-other") as other:
        (listed,) = one.models.list()
        assert (listed.id, listed.object, listed.owned_by) == ("code-act", "model", "coderoom")
        assert 0 <= time.time() - listed.created < 600
        assert one.models.retrieve("code-act") == listed
        with pytest.raises(openai.NotFoundError, match="The model 'nothing/new' does not exist") as caught:
            one.models.retrieve("nothing/new")
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.NotFoundError, match="POST /v1/embeddings: Not Found"):
            one.embeddings.create(model="code-act", input="x")
        with pytest.raises(openai.AuthenticationError) as wrong:
            client_of(url, "wrong").models.list()
        assert (wrong.value.code, wrong.value.type) == ("invalid_api_key", "invalid_request_error")
        messages: list[Any] = [{"role": "user", "content": "Count."}]
        first = one.chat.completions.create(model="code-act", messages=messages)
        assert words(first) == "Counted: 1."
        assert first.usage is not None
        assert first.usage.total_tokens > 0
        facts: dict[str, Any] = first.model_extra["coderoom"]  # type: ignore[index]
        assert (facts["outcome"], facts["files"]) == ("ok", ["1.txt"])
        content = first.choices[0].message.content
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "Again."}]
        # Nulls are as good as nothing, and another caller with the same words has another conversation.
        assert words(other.chat.completions.create(model="x", messages=messages)) == "Counted: 1."
        pieces = list(
            one.chat.completions.create(
                model="code-act", messages=messages, stream=True, stream_options={"include_usage": True}
            )
        )
        said = [piece.choices[0].delta for piece in pieces if piece.choices]
        assert "".join(delta.content or "" for delta in said).startswith("Counted: 2.\n\n[2.txt](")
        assert any("n is 2" in (delta.model_extra or {}).get("reasoning_content", "") for delta in said)
        assert [piece.usage is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
        file = f"{url}/conversations/{facts['conversation']}/files/1.txt"
        headers = {"Authorization": "Bearer key-of-one"}
        assert httpx.get(file, headers=headers).text == "made"
        assert httpx.get(file, headers={"Authorization": "Bearer key-of-other"}).status_code == 404
        with httpx.stream("GET", file, headers=headers) as opened:
            assert opened.headers["content-disposition"] == "attachment"
        for path in ("../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "none"):
            assert httpx.get(file.replace("1.txt", path), headers=headers).status_code == 404


def pays(request: Request) -> Reply:
    said = str(request.messages[-1]["content"])
    if said == "Pay them.":
        return Reply("```python\npay('Ann', 5)\npay('Bob', 6)\n```")
    return Reply("Bob gets nothing." if "too much for Bob" in said else "Both are paid.")


@pytest.mark.slow
def test_clients_are_asked_in_the_chat(tmp_path: Path) -> None:
    payments = tmp_path / "payments.txt"
    payments.touch()
    how: Any = {"respond": pays, "team": str(ROOT / "examples/approved_calls_team.yaml")}
    task = [{"role": "user", "content": "Pay them."}]

    tokens: list[int] = []

    def said_in(client: openai.OpenAI, messages: list[Any], *, stream: bool = False) -> list[Any]:
        """The conversation after its next answer."""
        given: Any = client.chat.completions.create(model="x", messages=messages, stream=stream)
        tokens.append(0 if stream else given.usage.total_tokens)
        pieces = [each.choices[0].delta for each in given] if stream else [given.choices[0].message]
        return [*messages, {"role": "assistant", "content": "".join(each.content or "" for each in pieces)}]

    with serving(tmp_path, "--ask-clients", **how) as url, client_of(url) as client:
        with ThreadPoolExecutor(2) as pool:  # Two chats with the same words.
            one, other = pool.map(lambda stream: said_in(client, task, stream=stream), [False, True])
        assert "pay('Ann', 5)" in one[1]["content"]
        assert one != other
        # Only an answer is one: neither other words, nor those of the code, nor a second answer to the same question.
        again = said_in(client, answered(one, "Which ones? yes"))
        assert again[-1]["content"].startswith("That was neither a yes nor a no")
        with pytest.raises(openai.APIStatusError, match="not asked any more") as caught:
            said_in(client, answered(one, "yes"))
        assert caught.value.status_code == 410
        assert payments.read_text() == ""
        bob = said_in(client, answered(again, "yes"), stream=True)
        assert "pay('Bob', 6)" in bob[-1]["content"]
        assert payments.read_text() == "5 to Ann\n"
        assert "Bob gets nothing." in said_in(client, answered(bob, "no: too much for Bob"))[-1]["content"]
        assert payments.read_text() == "5 to Ann\n"
        said_in(client, answered(other, "always"))
        assert payments.read_text() == "5 to Ann\n5 to Ann\n6 to Bob\n"
        assert sum(tokens) == 4 * 15  # Each request to the model is told once.
        left = said_in(client, task)
    with serving(tmp_path, "--ask-clients", **how) as url, client_of(url) as client:
        with pytest.raises(openai.APIStatusError, match="not in the journal"):
            said_in(client, answered(left, "yes"))
        assert payments.read_text().count("Ann") == 2


@pytest.mark.slow
def test_a_server_that_was_killed_goes_on_with_the_call_that_waits(tmp_path: Path) -> None:
    payments = tmp_path / "payments.txt"
    payments.touch()
    how: Any = {"respond": pays, "team": str(ROOT / "examples/approved_calls_team.yaml")}
    options = ("--ask-clients", "--journal", str(tmp_path / "journal"))
    with serving(tmp_path, *options, killed=True, **how) as url, client_of(url) as client:
        begun = continued(client, answered([], "Pay them."))
        other = continued(client, answered([], "Pay them."), user="other")
    with serving(tmp_path, *options, **how) as url, client_of(url) as client:
        # Nobody else answers: neither another token, nor another user, nor somebody who has changed what was said.
        with client_of(url, "key-of-other") as stranger, pytest.raises(openai.APIStatusError, match="not asked any"):
            continued(stranger, answered(begun, "yes"))
        with pytest.raises(openai.APIStatusError, match="not asked any"):
            continued(client, answered(begun, "yes"), user="other")
        with pytest.raises(openai.APIStatusError, match="not asked any"):
            continued(client, answered([*answered([], "Pay Eve."), begun[-1]], "yes"))
        assert payments.read_text() == ""
        bob = continued(client, answered(begun, "yes"))
        assert "pay('Bob', 6)" in bob[-1]["content"]
        assert payments.read_text() == "5 to Ann\n"
        with pytest.raises(openai.APIStatusError, match="not asked any"):
            continued(client, answered(begun, "yes"))
    with serving(tmp_path, *options, killed=True, **how) as url, client_of(url) as client:
        # The first yes was for Ann alone.
        with pytest.raises(openai.APIStatusError, match="not asked any"):
            continued(client, answered(begun, "yes"))
        edited = continued(client, answered(bob, "edit: pay('Bob', 2)"))
        assert re.search(r"pay\(.*2\)", edited[-1]["content"]), edited[-1]["content"]
    with serving(tmp_path, *options, **how) as url, client_of(url) as client:
        # What waits is the call as it was, since the edited one was not decided.
        again = continued(client, answered(edited, "yes"))
        assert again[-1]["content"].startswith("The server has gone on with this run, and your message was not taken")
        assert "pay('Bob', 6)" in again[-1]["content"]
        assert payments.read_text() == "5 to Ann\n"
        done = continued(client, answered(again, "no: too much for Bob"))
        assert "Bob gets nothing." in done[-1]["content"]
    with (  # The operator has other rules now.
        serving(tmp_path, *options, "--max-turns", "2", **how) as url,
        client_of(url) as client,
        pytest.raises(openai.APIStatusError, match="not asked any"),
    ):
        continued(client, answered(other, "always"), user="other")
    with serving(tmp_path, *options, **how) as url, client_of(url) as client:
        paid = continued(client, answered(other, "always"), user="other")
        assert "Both are paid." in paid[-1]["content"]
    assert payments.read_text() == "5 to Ann\n5 to Ann\n6 to Bob\n"


@pytest.mark.slow
def test_a_server_that_was_started_again_has_the_variables_of_before(tmp_path: Path) -> None:
    options = ("--journal", str(tmp_path / "journal"))
    with serving(tmp_path, *options, killed=True) as url, client_of(url) as client:
        first = continued(client, answered([], "Count. No file."))
        assert first[-1]["content"] == "Counted: 1."
        twice = [continued(client, answered([], "Again. No file.")) for _ in range(2)]
    with serving(tmp_path, *options) as url, client_of(url) as client:
        second = continued(client, answered(first, "Again. No file."))
        assert second[-1]["content"] == "Counted: 2."
        assert continued(client, answered(second, "Again. No file."))[-1]["content"] == "Counted: 3."
        # A branch of it, and one of two with the same words, begin anew.
        for said in (first, twice[0]):
            assert continued(client, answered(said, "Count. No file."))[-1]["content"] == "Counted: 1."


@pytest.mark.slow
@pytest.mark.parametrize(("answered", "paid"), [(True, "5 to Ann\n6 to Bob\n"), (False, "")])
def test_whoever_runs_the_server_is_asked_about_calls(tmp_path: Path, answered: bool, paid: str) -> None:
    said = recording(tmp_path / "r.json", ["```python\npay('Ann', 5)\npay('Bob', 6)\n```", "I cannot.", "I cannot."])
    team, journal = str(ROOT / "examples/approved_calls_team.yaml"), tmp_path / "journal"
    command = [sys.executable, "-m", "coderoom", "serve", team, "--port", "0", "--model", said]
    env = environment({"CODEROOM_TOKEN": KEYS, "CODEROOM_JOURNAL": str(journal), "PYTHONWARNINGS": "ignore"})
    stdin = subprocess.PIPE if answered else subprocess.DEVNULL  # Open, and nobody writes there; or there is none.
    (tmp_path / "payments.txt").touch()
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=stdin, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            with client_of(server.stdout.readline().strip()) as client:
                task: list[Any] = [{"role": "user", "content": "Pay them."}]
                told = ""
                for chunk in client.chat.completions.create(model="x", messages=task, stream=True):
                    told += (chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "")
                    if answered and told.endswith("is asked about a call of a function.\n"):
                        answer_in(Journal(journal), "always")
        finally:
            server.terminate()
    assert ("was not allowed: The input ended" in told) is not answered
    assert (tmp_path / "payments.txt").read_text() == paid


@pytest.mark.slow
def test_a_failed_question_is_nobody_elses(tmp_path: Path) -> None:
    heard: list[str] = []

    def respond(request: Request) -> Reply | Failure:
        heard.append(str(request.messages))
        return model(request)

    with serving(tmp_path, respond=respond) as url, client_of(url) as client:
        rules = {"role": "system", "content": "Be brief."}
        secret: list[Any] = [rules, {"role": "user", "content": "My secret is 4711. Refuse."}]
        with pytest.raises(openai.APIStatusError):
            client.chat.completions.create(model="x", messages=secret)
        del heard[:]
        other: list[Any] = [rules, {"role": "user", "content": "Count. No file."}]
        answers = [client.chat.completions.create(model="x", messages=other) for _ in range(2)]
        assert [answer.choices[0].message.content for answer in answers] == ["Counted: 1."] * 2
        assert not any("4711" in each for each in heard)
        # Two conversations have the same words now, so that nobody knows which of them goes on.
        other += [{"role": "assistant", "content": "Counted: 1."}, {"role": "user", "content": "Again. No file."}]
        for _ in range(2):
            answer = client.chat.completions.create(model="x", messages=other)
            assert answer.choices[0].message.content == "Counted: 1."


@pytest.mark.slow
def test_many_requests_at_once_are_limited(tmp_path: Path) -> None:
    with serving(tmp_path, "--concurrency", "2") as url:

        def status(_: int) -> int:
            headers = {"Authorization": "Bearer key-of-one"}
            question = {"model": "x", "messages": [{"role": "user", "content": "Count."}]}
            return httpx.post(f"{url}/chat/completions", json=question, headers=headers, timeout=60).status_code

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(status, range(8)))
        assert sorted(set(found)) == [200, 429]
        assert status(0) == 200


@pytest.mark.slow
def test_requests_that_no_team_can_answer(tmp_path: Path) -> None:
    with serving(tmp_path, "--requests-per-minute", "4", "--budget", "cells=1") as url:
        with client_of(url) as client:

            def status(**more: Any) -> int:
                request: dict[str, Any] = {"model": "x", "messages": [{"role": "user", "content": "Count."}], **more}
                try:
                    client.chat.completions.create(**request)
                except openai.APIStatusError as error:
                    return error.status_code
                return 200

            picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
            assert status(messages=[]) == 400
            assert status(messages=[{"role": "user", "content": [picture]}]) == 400
            assert status(tools=[{"type": "function", "function": {"name": "f"}}]) == 400
            assert status(n=2) == 400
            assert status(messages=[{"role": "assistant", "content": "Hi."}]) == 400  # That was the first that counts.
            assert status(messages=[{"role": "user", "content": "Refuse."}]) == 502
            assert status() == 200
            assert status() == 200
            assert status() == 429
        with client_of(url, "wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        with client_of(url, "key-of-other") as client:
            answer = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "Count."}])
            assert answer.choices[0].finish_reason == "stop"
        headers = {"Authorization": "Bearer key-of-other", "Origin": "http://other.example"}
        assert httpx.get(f"{url}/models", headers=headers).status_code == 403


@pytest.mark.slow
def test_a_port_that_is_taken_is_named_after_the_wall(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = coderoom(
            "serve", "code-act", "--port", port, "--wall", "none", cwd=tmp_path, env={"OPENAI_API_KEY": "test-key"}
        )
    assert done.returncode == 2
    assert done.stderr.startswith("Code is not isolated")
    assert f"The port {port} of 127.0.0.1 cannot be used: Address already in use." in done.stderr


@pytest.mark.slow
def test_a_client_that_leaves_ends_its_run(tmp_path: Path) -> None:
    with serving(tmp_path, "--concurrency", "1") as url, client_of(url) as client:
        messages: list[Any] = [{"role": "user", "content": "Wait."}]
        for stream in (False, True):
            with pytest.raises((openai.APITimeoutError, httpx.ReadTimeout)):
                for _ in client.with_options(timeout=4).chat.completions.create(
                    model="x", messages=messages, stream=stream
                ):
                    pass
            deadline = time.monotonic() + 20
            while True:  # As long as the first answer goes on, another one is refused.
                try:
                    done = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "Count."}])
                    break
                except openai.RateLimitError:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
            assert words(done) == "Counted: 1."


@pytest.mark.slow
def test_pictures_and_files_are_links_that_work_without_the_key(tmp_path: Path) -> None:
    messages: list[Any] = [{"role": "user", "content": "Draw."}]
    with serving(tmp_path) as url, client_of(url) as client:
        answer = client.chat.completions.create(model="x", messages=messages).choices[0].message.content or ""
        found = {name: (mark, link) for mark, name, link in LINK.findall(answer)}
        assert {name: mark for name, (mark, _) in found.items()} == {
            "a _b__c_ ü.png": "!",
            "data.html": "",
            "fake.png": "",
        }
        plot, page, fake = (httpx.get(link) for _, link in found.values())
        assert (plot.headers["content-type"], plot.content[:4]) == ("image/png", b"\x89PNG")
        assert plot.headers["content-disposition"].startswith("inline")
        for each in (page, fake):
            assert each.headers["content-type"] == "application/octet-stream"
            assert each.headers["content-disposition"].startswith("attachment")
            assert each.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in each.headers["content-security-policy"]
        # The conversation goes on with an answer that has links, and the copies stay as they were.
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Count."}]
        pieces = client.chat.completions.create(model="x", messages=messages, stream=True)
        said = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert said.startswith("Counted: 1.\n\n[1.txt](")
        (_, _, link) = LINK.findall(said)[0]
        assert httpx.get(link).text == "made"
        assert httpx.get(link.replace("/links/", "/links/x")).status_code == 404
        assert httpx.post(link).status_code == 405
        assert httpx.get(link, headers={"Origin": "http://other.example"}).status_code == 403
        assert httpx.get(f"{url}/links/../models").status_code == 401
        # A host that could end the link is not written into it.
        headers = {"Authorization": "Bearer key-of-one", "Host": "a.example)"}
        question = {"messages": [{"role": "user", "content": "Count. Again."}]}
        said = httpx.post(f"{url}/chat/completions", json=question, headers=headers, timeout=60).json()
        assert said["choices"][0]["message"]["content"] == "Counted: 1."


@pytest.mark.slow
def test_links_begin_with_the_public_url(tmp_path: Path) -> None:
    with serving(tmp_path, "--public-url", "https://chat.example.org/team/v1") as url, client_of(url) as client:
        answer = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "Count."}])
        content = answer.choices[0].message.content or ""
        assert "(https://chat.example.org/team/v1/links/" in content
    done = coderoom("serve", "code-act", "--public-url", "example.org?x", cwd=tmp_path, env={"OPENAI_API_KEY": "test"})
    assert "--public-url 'example.org?x' is not the URL of a server" in done.stderr
