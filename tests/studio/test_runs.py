"""Runs of teams in Studio's playground: what a person sees, what programs get, and what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.agents.helpers import decide, python, verdict
from tests.studio.driving import Run, Studio, texts
from tests.studio.teams import (
    ACT,
    CODING,
    EXECUTOR,
    REVIEWER,
    ROUND,
    agent,
    openai,
    part,
    replay,
    sandbox,
    shipped,
    shipped_teams,
    team,
    team_agent,
)
from tests.support.commands import ROOT, coderoom
from tests.support.openai_server import Failure, OpenAIServer
from tests.support.selector_team import respond, selector

pytestmark = pytest.mark.studio

DRAW = "Now well.\n\n" + python(
    "from PIL import Image\nImage.new('RGB', (40, 20), 'red').save('red.png')\nprint('drawn')\nprint(6 * 7)"
)
ASSISTANT = "autogen_agentchat.agents.AssistantAgent"
AUTOGENS_EXECUTOR = "autogen_agentchat.agents.CodeExecutorAgent"


def assistant(name: str, *replies: str | dict[str, Any], **config: Any) -> dict[str, Any]:
    needed = {"description": "An assistant.", "reflect_on_tool_use": False, "tool_call_summary_format": "{result}"}
    return agent(ASSISTANT, name, **{**needed, "model_client": replay(*replies), **config})


def seen(run: Run) -> list[tuple[str, str]]:
    """Who said what on the page; a page that is opened again shows the same."""
    found = [(message["source"], text) for message, text in zip(run.sent, texts(run.sent), strict=True)]
    stored = run.stored()
    assert [(message["source"], text) for message, text in zip(stored, texts(stored), strict=True)] == found
    return found


def result_types(run: Run) -> list[str]:
    record = run.record()
    return [message["type"] for message in record["team_result"]["task_result"]["messages"]]


def ended_well(run: Run) -> bool:
    record = run.record()
    return bool(record["status"] == "complete") or pytest.fail(str(record["error_message"]))


# --- The shipped teams ---


def test_coder_reviewer_shows_everything(driver: Studio, tmp_path: Path) -> None:
    coder = replay(
        *[f"I try.\n\n{python('print(nothing)')}", decide(True, "the name is wrong"), DRAW, "It is forty-two."],
        *[python("print('mended')"), "Mended now."],
    )
    reviewer = replay(
        verdict(False, "Not yet.", [{"severity": "error", "line": 2, "message": "No legend."}]),
        verdict(True, "Fine."),
    )
    run = driver.run(shipped("coder-reviewer", tmp_path, coder, reviewer), "Draw it.")
    assert ended_well(run)
    said = seen(run)
    assert [who for who, _ in said] == ["user", *["coder"] * 6, "reviewer", *["coder"] * 3, "reviewer"]
    shown = [text for _, text in said]
    assert shown[1] == "**Attempt 1**\n\nI try.\n\n```python no-run\nprint(nothing)\n```"
    assert shown[2].startswith("**Attempt 1: error, exit code 1**\n\n```text no-run\nTraceback")
    assert "NameError" in shown[2]
    assert shown[3] == "**Attempt 1 failed: another one follows**\n\nthe name is wrong"
    assert "red.png" in shown[4]
    assert shown[5] == ("**Attempt 2: ok, exit code 0**\n\n```text no-run\ndrawn\n42\n```\n\nFiles: red.png<image>")
    assert shown[6].startswith("It is forty-two.\n\nAttempt 2: ok, exit code 0.")
    assert shown[7] == "Not approved. Not yet.\n- error, line 2: No legend."
    assert shown[11] == "Approved. Fine."
    # Tokens came as they were written.
    assert "It is forty-two." in run.chunks
    assert "Mended now." in run.chunks
    types = result_types(run)
    assert types.count("CodeGenerationEvent") == 4
    assert types.count("CodeExecutionEvent") == 3
    assert types[-1] == "TextMessage"


def test_plots_are_stored_as_pictures(driver: Studio, tmp_path: Path) -> None:
    run = driver.run(shipped("code-act", tmp_path, replay(DRAW, "It is 42.")), "Draw it.")
    pictures = [
        piece
        for message in run.stored()
        if message["type"] == "MultiModalMessage"
        for piece in message["content"]
        if not isinstance(piece, str)
    ]
    assert len(pictures) == 1
    # Either is what the page makes a picture of.
    assert pictures[0].get("url", "").startswith("data:image/png;base64,iVBOR") or pictures[0]["data"][:5] == "iVBOR"
    assert seen(run)[-1] == ("coder", texts(run.sent)[-1])
    assert texts(run.sent)[-1].startswith("It is 42.")


def test_code_act_streams_what_the_code_prints(driver: Studio, tmp_path: Path) -> None:
    code = python("import time\nfor i in range(3):\n    print('step', i, flush=True)\n    time.sleep(0.1)")
    run = driver.run(shipped("code-act", tmp_path, replay({"content": code, "thought": "Count."}, "Done.")), "Count.")
    assert ended_well(run)
    assert "step 0" in run.chunks
    shown = [text for _, text in seen(run)]
    assert shown[1] == "> Count."
    assert "**Attempt 1: ok, exit code 0**\n\n```text no-run\nstep 0\nstep 1\nstep 2\n```" in shown


def test_coder_executor_says_what_ran(driver: Studio, tmp_path: Path) -> None:
    run = driver.run(shipped("coder-executor", tmp_path, replay(python("print(6 * 7)"))), "Compute it.")
    assert ended_well(run)
    assert [text for _, text in seen(run)][1:] == [
        python("print(6 * 7)"),
        "**Attempt 1: ok, exit code 0**",
        "42\n",
    ]


def test_the_maintainer_shows_the_diff_and_leaves_the_folder(driver: Studio, tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("def area(a, b):\n    return a + b\n")
    edit = "```diff\n--- a/box.py\n+++ b/box.py\n@@ -2 +2 @@\n-    return a + b\n+    return a * b\n```"
    coder, reviewer = replay(edit, "It multiplies now."), replay(verdict(True, "Right."))
    run = driver.run(shipped("maintainer", tmp_path, coder, reviewer), "The area is wrong.")
    assert ended_well(run)
    who, text = seen(run)[-1]
    assert who == "coder"
    assert text.startswith("**Changes**, which are not in the folder\n\n- `modified box.py`\n\n```diff no-run\n")
    assert "\n-    return a + b\n+    return a * b\n```" in text
    assert [path.name for path in tmp_path.iterdir()] == ["box.py"]
    assert "a + b" in (tmp_path / "box.py").read_text()


def test_the_analyst_draws_and_is_reviewed(driver: Studio, tmp_path: Path) -> None:
    models = [replay(python("print('looking')"), DRAW), replay(verdict(False, "Go on."), verdict(True, "Good."))]
    run = driver.run(shipped("analyst", tmp_path, *models), "Draw it.")
    assert ended_well(run)
    said = seen(run)
    assert [who for who, _ in said][1:] == ["coder", "executor", "executor", "reviewer"] * 2
    assert said[6][1].endswith("Files: red.png<image>")
    assert said[-1] == ("reviewer", "Approved. Good.")


def test_the_generator_shows_its_steps(driver: Studio, tmp_path: Path) -> None:
    from ruamel.yaml import YAML

    recorded = YAML(typ="safe").load(ROOT / "examples" / "solve.replay.yaml")["replies"]
    models = [replay(*recorded), replay(verdict(True, "Good."))]
    run = driver.run(shipped("test-driven", tmp_path, *models), "Write numbers as Roman numerals, and read them.")
    assert ended_well(run)
    shown = [text for _, text in seen(run)]
    assert shown[1].startswith("> Functions:\n> - to_roman: ")
    for part_of_it in (
        "> Tests of from_roman:",
        "**Attempt 1**\n\nto_roman, attempt 1",
        "**Attempt 1: error, exit code 1**",
    ):
        assert any(text.startswith(part_of_it) for text in shown), part_of_it
    assert shown[-2].startswith("All 13 tests passed.")
    assert shown[-1] == "Approved. Good."
    assert len(shown) < 20


# --- Other teams ---


@pytest.mark.parametrize("kind", [CODING, ROUND])
def test_any_team_of_ours_and_others(kind: str, driver: Studio, tmp_path: Path) -> None:
    coder = assistant("writer", python("print(6 * 7)"))
    executor = agent(EXECUTOR, "executor", code_executor=sandbox(tmp_path))
    reviewer = agent(REVIEWER, "reviewer", model_client=replay(verdict(True, "Good.")))
    run = driver.run(team(kind, coder, executor, reviewer), "Compute it.")
    assert ended_well(run)
    assert [text for _, text in seen(run)][2:] == ["**Attempt 1: ok, exit code 0**", "42\n", "Approved. Good."]


def test_a_selector_and_a_swarm(driver: Studio, tmp_path: Path) -> None:
    def coder() -> dict[str, Any]:
        models = replay(python("print(6 * 7)"), "It is 42.")
        return agent(EXECUTOR, "coder", model_client=models, code_executor=sandbox(tmp_path))

    selector = team(
        "autogen_agentchat.teams.SelectorGroupChat",
        coder(),
        agent(REVIEWER, "reviewer", model_client=replay(verdict(True, "Good."))),
        model_client=replay("coder", "reviewer"),
        selector_prompt="Choose of {participants}. {roles} {history}",
        allow_repeated_speaker=False,
    )
    run = driver.run(selector, "Compute it.")
    assert [who for who, _ in seen(run)] == ["user", "coder", "coder", "coder", "reviewer"]
    handing = {"content": [{"id": "1", "name": "transfer_to_coder", "arguments": "{}"}]}
    clerk = assistant("clerk", handing, handoffs=[{"target": "coder"}])
    clerk["config"]["model_client"] = replay(handing, function_calling=True)
    run = driver.run(team("autogen_agentchat.teams.Swarm", clerk, coder()), "Compute it.")
    assert ended_well(run)
    assert seen(run)[-2] == ("coder", "**Attempt 1: ok, exit code 0**\n\n```text no-run\n42\n```")


def test_autogens_own_agent_in_our_team_is_shown(driver: Studio, tmp_path: Path) -> None:
    own = agent(
        AUTOGENS_EXECUTOR,
        "coder",
        model_client=replay(python("print(6 * 7)"), "It is 42."),
        code_executor=sandbox(tmp_path),
    )
    run = driver.run(team(CODING, own), "Compute it.")
    assert ended_well(run)
    assert seen(run)[2] == ("coder", "**Attempt 1: ok, exit code 0**\n\n```text no-run\n42\n```")
    plain = driver.run(team(ROUND, own), "Compute it.")
    assert result_types(plain) == ["TextMessage", "CodeGenerationEvent", "CodeExecutionEvent", "TextMessage"]


def test_code_that_is_refused_is_shown_with_the_reason(driver: Studio, tmp_path: Path) -> None:
    rule = {"pattern": "rmtree", "action": "deny", "reason": "Whole folders are not deleted here."}
    approval = part("approval", "coderoom.approval.RuleApproval", default="allow", rules=[rule])
    models = replay(python("import shutil\nshutil.rmtree('x')"))
    coder = agent(EXECUTOR, "coder", model_client=models, code_executor=sandbox(tmp_path), approval=approval)
    run = driver.run(team(CODING, coder), "Delete it.")
    assert ended_well(run)
    shown = [text for _, text in seen(run)]
    assert shown[2].startswith("**Attempt 1 was not allowed to run**")
    assert "Whole folders are not deleted here." in shown[2]


# --- Errors ---


def failed(run: Run) -> str:
    """The last thing that is said in a run that failed; that is what the page shows at its end."""
    assert run.record()["status"] == "error"
    return seen(run)[-1][1]


@pytest.mark.parametrize("kind", [CODING, ROUND])
def test_a_refused_key(kind: str, driver: Studio, tmp_path: Path) -> None:
    with OpenAIServer([Failure(401, message="Incorrect API key provided: none.")]) as server:
        coder = agent(EXECUTOR, "coder", model_client=openai(server.base_url), code_executor=sandbox(tmp_path))
        text = failed(driver.run(team(kind, coder), "Compute it."))
    assert text.startswith("**coder could not go on: AuthenticationError**")
    assert "Incorrect API key provided: none." in text
    assert "Check the key of your model service (OPENAI_API_KEY for" in text


def test_a_refused_key_of_autogens_assistant(driver: Studio, tmp_path: Path) -> None:
    with OpenAIServer([Failure(401, message="Incorrect API key provided: none.")]) as server:
        made = shipped("coder-executor", tmp_path, openai(server.base_url))
        text = failed(driver.run(made, "Compute it."))
    assert text.startswith("**coder could not go on: AuthenticationError**")


def test_errors_of_autogens_own_agents_in_its_own_teams(driver: Studio, tmp_path: Path) -> None:
    executor = agent(EXECUTOR, "executor", code_executor=sandbox(tmp_path))
    for streams in (True, False):
        with OpenAIServer([Failure(401, message="Incorrect API key provided: none.")]) as server:
            writer = assistant("writer", model_client=openai(server.base_url), model_client_stream=streams)
            run = driver.run(team(ROUND, writer, executor), "Compute it.")
        text = failed(run)
        assert text.startswith("**writer could not go on: AuthenticationError**")
        assert "Incorrect API key provided: none." in text
        assert "Traceback" not in text
        assert "Check the key of your model service (OPENAI_API_KEY for" in text
        assert len(seen(run)) == 2


def test_no_model_service(driver: Studio, tmp_path: Path) -> None:
    with OpenAIServer() as server:
        gone = server.base_url
    text = failed(driver.run(shipped("code-act", tmp_path, openai(gone)), "Compute it."))
    assert "No model service could be reached at http" in text


def test_the_generators_model_fails(driver: Studio, tmp_path: Path) -> None:
    with OpenAIServer([Failure(401, message="Incorrect API key provided: none.")], repeat=True) as server:
        made = shipped("test-driven", tmp_path, openai(server.base_url), replay(verdict(False, "Nothing.")))
        made["config"]["max_turns"] = 1
        run = driver.run(made, "Compute it.")
    assert any("Incorrect API key provided: none." in text for _, text in seen(run))


@pytest.mark.parametrize("kind", [CODING, ROUND])
def test_code_cannot_run_here(kind: str, driver: Studio, tmp_path: Path) -> None:
    place = sandbox(tmp_path, python="/no/such/python")
    coder = agent(EXECUTOR, "coder", model_client=replay(python("print(1)")), code_executor=place)
    text = failed(driver.run(team(kind, coder), "Compute it."))
    assert text.startswith("**coder could not go on: ")
    assert "/no/such/python" in text


def test_an_error_in_a_nested_team(driver: Studio, tmp_path: Path) -> None:
    coder = agent(EXECUTOR, "coder", model_client=replay(), code_executor=sandbox(tmp_path))
    inner = [team(CODING, coder, name="inner"), team(ROUND, coder, name="inner")]
    for outer, nested in (
        *((CODING, inner[0]), (CODING, inner[1]), (ROUND, inner[0])),
        *((CODING, team_agent(inner[0])), (ROUND, team_agent(inner[0])), (ROUND, team_agent(inner[1]))),
    ):
        run = driver.run(team(outer, nested, turns=1), "Compute it.")
        assert failed(run).startswith("**coder could not go on: RequestError**")
        assert len(seen(run)) == 2


@pytest.mark.parametrize(("inner", "outer"), [(CODING, ROUND), (ROUND, CODING)])
def test_a_run_of_a_team_that_stands_for_an_agent(inner: str, outer: str, driver: Studio, tmp_path: Path) -> None:
    models = replay(python("print(nothing)"), decide(True, "A name is wrong."), python("print(6 * 7)"), "It is 42.")
    coder = agent(EXECUTOR, "coder", model_client=models, code_executor=sandbox(tmp_path), max_retries_on_error=1)
    pair = team(inner, coder, agent(REVIEWER, "reviewer", model_client=replay(verdict(True, "Fine."))), name="inner")
    run = driver.run(team(outer, team_agent(pair), turns=1), "Compute it.")
    assert ended_well(run)
    shown = [text for _, text in seen(run)]
    for words in ("print(nothing)", "NameError", "A name is wrong.", "print(6 * 7)", "ok, exit code 0", "It is 42."):
        assert any(words in text for text in shown), (words, shown)
    assert [text for text in shown if "Approved. Fine." in text] == ["Approved. Fine."]
    assert result_types(run).count("CodeExecutionEvent") == 2


def test_a_mistake_in_a_config(driver: Studio, tmp_path: Path) -> None:
    coder = agent(EXECUTOR, "coder", code_executor=sandbox(tmp_path, wal="auto"))
    run = driver.run(team(CODING, coder), "Compute it.")
    record = run.record()
    assert record["status"] == "error"
    # Nothing was said before, and then the page shows this.
    assert run.stored() == []
    assert "wal\n  Extra inputs are not permitted" in record["error_message"]


# --- What lasts ---


def test_files_last_from_run_to_run_and_variables_do_not(driver: Studio, tmp_path: Path) -> None:
    first = replay(python("kept = 42\nopen('kept.txt', 'w').write('forty-two')"), "Kept.")
    run = driver.run(shipped("code-act", tmp_path, first), "Keep it.")
    code = "print(open('kept.txt').read())\nprint('kept' in globals())"
    again = driver.run(shipped("code-act", tmp_path, replay(python(code), "Read.")), "Read it.", run.session)
    assert "**Attempt 1: ok, exit code 0**\n\n```text no-run\nforty-two\nFalse\n```" in texts(again.sent)


def test_variables_last_within_a_run_in_a_nested_team(driver: Studio, tmp_path: Path) -> None:
    models = replay(python("kept = 42"), "Kept.", python("print(kept)"), "Read.")
    nested = team(CODING, agent(ACT, "coder", model_client=models, code_executor=sandbox(tmp_path)))
    run = driver.run(team(CODING, nested, turns=2), "Keep it.")
    assert ended_well(run)
    assert "**Attempt 1: ok, exit code 0**\n\n```text no-run\n42\n```" in texts(run.sent)


# --- Through Studio and back ---


def test_shipped_teams_come_back_whole(driver: Studio) -> None:
    for component in shipped_teams():
        saved = driver.add_team(component)
        assert saved["component"] == component
        read = driver.get(f"/teams/{saved['id']}")
        assert read["component"] == component
        # As the builder saves it.
        again = driver.post("/teams/", {name: read[name] for name in ("id", "user_id", "version", "component")})
        assert json.dumps(again["component"], sort_keys=True) == json.dumps(component, sort_keys=True)
        checked = driver.post_raw("/validate/", {"component": component})
        assert (checked["is_valid"], checked["errors"]) == (True, [])


# --- Recordings ---


def test_a_recorded_team_replays_the_same_twice(driver: Studio, tmp_path: Path) -> None:
    with OpenAIServer(respond=respond) as server:
        selector(tmp_path, server.base_url)
        options = ["--json", "--record", "run.jsonl"]
        env = {"OPENAI_API_KEY": "sk-test-0123456789abcdef"}
        recorded = coderoom("run", "team.yaml", "6 * 7?", *options, cwd=tmp_path, env=env)
    assert json.loads(recorded.stdout)["succeeded"], recorded.stdout
    component = YAML(typ="safe").load((tmp_path / "team.yaml").read_text())
    model = part("model", "coderoom.configs.RecordedModel", file=str(tmp_path / "run.jsonl"))
    component["config"]["model_client"] = model
    for each in component["config"]["participants"]:
        each["config"]["model_client"] = model
    first, again = (driver.run(component, "6 * 7?") for _ in range(2))
    assert ended_well(first)
    assert ended_well(again)
    assert seen(first) == seen(again)
    said = [message for message in json.loads(recorded.stdout)["messages"] if message["type"] == "TextMessage"]
    shown = "\n".join(text for _, text in seen(first))
    assert len(said) > 2
    assert all(message["content"].strip() in shown for message in said)
