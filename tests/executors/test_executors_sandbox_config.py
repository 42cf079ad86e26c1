"""The declarative form of the sandbox's executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from coderoom.configs import check_team, dump_team, load_team, secrets_of
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.sandbox import Limits, probe_walls
from tests.executors.helpers import TEAM
from tests.executors.helpers import run_in as run


def every_argument(folder: Path) -> dict[str, Any]:
    """A value that is not the default for each argument."""
    return {
        "work_dir": str(folder),
        "timeout": 7.5,
        "state": "fresh",
        "wall": "docker",
        "preload": ["json"],
        "network": ["api.example.org:443", "*.example.com"],
        "policy": "restricted",
        "limits": {"memory_bytes": 1 << 28},
        "env": ["LANG"],
        "python": "/usr/bin/python3",
        "readable": ["/srv/data"],
        "options": {"image": "python:3.12-slim"},
        "packages": ["polars>=1"],
        "allowed_packages": ["polars"],
        "local_network": True,
        "credentials": {"api.example.org": {"value": "Bearer ${SOME_TOKEN}", "methods": ("GET",)}},
        "workspace_mode": "overlay",
        "describe_tables": False,
        "environment": "project",
    }


def test_f6_every_argument_survives_a_round_trip(tmp_path: Path) -> None:
    given = every_argument(tmp_path)
    dumped = SandboxCodeExecutor(**given).dump_component()
    assert dumped.provider == "coderoom.executors.SandboxCodeExecutor"
    assert dumped.config == given | {"engine": "cpython", "processes": False, "editing": False}
    again = SandboxCodeExecutor.load_component(json.loads(dumped.model_dump_json()))
    assert again.dump_component() == dumped
    defaults = SandboxCodeExecutor().dump_component().config
    assert [name for name in given if defaults.get(name) == given[name]] == []
    with_objects = given | {
        "limits": Limits(memory_bytes=1 << 28),
        "work_dir": tmp_path,
        "readable": [Path("/srv/data")],
    }
    assert SandboxCodeExecutor(**with_objects).dump_component() == dumped
    assert SandboxCodeExecutor(processes=True).dump_component().config["processes"] is True
    with pytest.raises(RequestError, match="processes stay only with state='session'"):
        SandboxCodeExecutor(processes=True, state="fresh")
    assert SandboxCodeExecutor(editing=True).dump_component().config["editing"] is True
    with pytest.raises(RequestError, match="editing needs state='session' and policy='open'"):
        SandboxCodeExecutor(editing=True, policy="restricted")


async def test_f6_nothing_of_this_machine_gets_into_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-value")
    executor = SandboxCodeExecutor(env=["SOME_KEY"])
    before = executor.dump_component()
    async with executor:
        assert (await run(executor, "import os\nos.environ['SOME_KEY']")).output == "'secret-value'\n"
        assert executor.dump_component() == before
    assert "secret-value" not in before.model_dump_json()


def test_f1_an_unknown_key_is_refused() -> None:
    for config in (
        {"work_dri": "x"},
        {"limits": {"memory": 1}},
        {"wall": "paper"},
        {"policy": "strict"},
        {"timeout": 0},
    ):
        with pytest.raises(ValidationError):
            SandboxCodeExecutor.load_component({"provider": "coderoom.executors.SandboxCodeExecutor", "config": config})


class OwnExecutor(SandboxCodeExecutor):
    """A user's own executor."""


def test_f4_a_subclass_is_dumped_as_itself() -> None:
    assert OwnExecutor().dump_component().provider == f"{__name__}.OwnExecutor"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"env": "HOME"}, "must be a list"),
        ({"preload": "numpy"}, "must be a list"),
        ({"readable": "/srv"}, "must be a list"),
        ({"env": ["A=B"]}, "'A=B'"),
        ({"timeout": float("inf")}, "timeout"),
        ({"network": ["https://a.org/b"]}, "network: .* write the host alone: 'a.org'"),
        ({"network": "a.org"}, "list of hosts"),
        ({"wall": "none", "options": {"image": "x"}}, "has no options, but got 'image'"),
        ({"wall": "docker", "options": {"imgae": "x"}}, "did you mean 'image'"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SandboxCodeExecutor(**arguments)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tiemout", "5", "'timeout'"),
        ("wall", "bubblewarp", "'bubblewrap'"),
        ("limits", "{memory: 1}", "memory_bytes"),
        ("network", "[a.org, 'b:99999']", "no port 99999"),
    ],
)
def test_a_mistake_in_a_file_has_its_line(tmp_path: Path, key: str, value: str, words: str) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.format(key=key, value=value))
    [problem] = check_team(tmp_path / "team.yaml")
    assert (problem.line, words in problem.message) == (10, True), problem


async def test_every_wall_of_the_sandbox_can_be_chosen() -> None:
    for name in ("auto", "none", *(report.name for report in await probe_walls())):
        assert SandboxCodeExecutor(wall=name).wall == name


@pytest.mark.parametrize(
    ("own", "options", "network"),
    [
        ("false", {"allowed_hosts": ["a.org"]}, ["a.org"]),
        ("[b.org]", {"allowed_hosts": ["a.org"]}, ["b.org", "a.org"]),
        ("observe", {"allowed_hosts": ["a.org"]}, ["observe", "a.org"]),
        ("true", {"allowed_hosts": ["a.org"], "network": False}, ["a.org"]),
        ("[b.org]", {"network": ("a.org",)}, ["a.org"]),
        ("true", {"allowed_hosts": ["a.org"]}, "whole network"),
        ("false", {"allowed_hosts": ["a.org/b"]}, "write the host alone"),
    ],
)
def test_hosts_of_a_run_are_added_to_those_of_the_team(
    tmp_path: Path, own: str, options: dict[str, Any], network: Any
) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.format(key="network", value=own))
    if isinstance(network, str):
        with pytest.raises(RequestError, match=network):
            load_team(tmp_path / "team.yaml", **options)
        return
    team = YAML(typ="safe").load(dump_team(load_team(tmp_path / "team.yaml", **options)))
    assert team["config"]["participants"][0]["config"]["code_executor"]["config"]["network"] == network


def test_credentials_and_servers_of_a_run_are_added_to_those_of_the_team(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.format(key="credentials", value="{a.org: {value: '${SOME_TOKEN}'}}"))
    more = {"b.org": {"header": "X-Key", "value": "${OTHER_TOKEN}"}}
    options: dict[str, Any] = {"env": {"SOME_TOKEN": "token"}, "credentials": more, "local_network": True}
    team = YAML(typ="safe").load(dump_team(load_team(tmp_path / "team.yaml", **options)))
    config = team["config"]["participants"][0]["config"]["code_executor"]["config"]
    more["b.org"]["value"] = "$${OTHER_TOKEN}"  # Which is read when the sandbox starts, and not with the file.
    assert (config["credentials"], config["local_network"]) == ({"a.org": {"value": "${SOME_TOKEN}"}, **more}, True)
    with pytest.raises(RequestError, match="wildcard"):
        load_team(tmp_path / "team.yaml", **{**options, "credentials": {"*.org": {"value": "${OTHER_TOKEN}"}}})


def test_credentials_of_a_file_are_in_no_dump_and_are_known_as_secrets(tmp_path: Path) -> None:
    value = "{a.org: {value: 'Bearer ${SOME_TOKEN}'}, b.org: {value: literal-secret}}"
    (tmp_path / "team.yaml").write_text(TEAM.format(key="credentials", value=value))
    team = load_team(tmp_path / "team.yaml", env={"SOME_TOKEN": "token-of-the-test"})
    dumped = dump_team(team)
    assert "value: Bearer ${SOME_TOKEN}" in dumped
    assert "literal-secret" not in dumped
    assert {"token-of-the-test", "literal-secret"} <= secrets_of(team).keys()
