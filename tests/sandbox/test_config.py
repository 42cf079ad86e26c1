"""Wrong arguments are refused where they are given, by name, with what came and what was expected."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import Credential, Limits, Sandbox, SandboxConfig
from coderoom.sandbox.config import network_in_words

from .places import Place, on_each_engine


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"network": "yes"}, r"network='yes' is neither True nor False"),
        ({"limits": {"wall_seconds": -1}}, r"^limits: wall_seconds=-1: input should be greater than 0\.$"),
        (
            {"limits": {"wall_second": 3}},
            r"limits: there is no 'wall_second' among wall_.* Did you mean 'wall_seconds'",
        ),
        ({"limits": {"open_files": 1, "processes": "x"}}, r"processes='x': .*; open_files=1: input should be"),
        ({"limits": 5}, r"limits=5 is neither Limits"),
        ({"env": ["HOME"]}, r"env= is a list, and a mapping"),
        ({"env": {"A": 1}}, r"env: the value of 'A' is a int, and text"),
        ({"env": {"A=B": "c"}}, r"env: 'A=B' is not the name"),
        ({"workspace": 5}, r"workspace=5 is not the path"),
        ({"workspace": ""}, r"workspace='' is not the path"),
        ({"workspace": "~no-such-user/a"}, r"workspace='~no-such-user/a' cannot be found"),
        ({"preload": "numpy"}, r"preload='numpy' is not a list"),
        ({"preload": [1]}, r"preload=\[1\] is not a list"),
        ({"readable": "/usr"}, r"readable='/usr' is not a list"),
        ({"python": 3}, r"python=3 is not the path"),
        ({"concurrency": 0}, r"concurrency=0 must be .* at least 1"),
        ({"concurrency": "many"}, r"concurrency='many' must be"),
        ({"options": ["image"]}, r"options= is a list"),
        ({"policy": "restrict"}, r"no policy 'restrict'"),
        ({"policy": ["open"]}, r"no policy \['open'\]"),
        ({"engine": "pypy"}, r"no engine 'pypy'"),
        ({"wall": "foo"}, r"There is no wall 'foo'; there are 'auto', 'bubblewrap', "),
        ({"wall": "bublewrap"}, r"Did you mean 'bubblewrap'\?"),
        ({"workspace_mode": "overlay"}, r"workspace_mode='overlay' needs a workspace"),
        (
            {"network": True, "credentials": {"a": {"value": "k"}}},
            r"credentials: with network=True, nothing is between",
        ),
        ({"network": ["a b"]}, r"^network: 'a b'"),
        ({"credentials": {"*.a": {"value": "k"}}}, r"credentials: '\*\.a' has a wildcard"),
        ({"credentials": {"a": {}}}, r"credentials: a: value: Field required"),
        ({"credentials": {"a": {"value": "k", "header": "Host"}}}, r"a: header: .*Host says where a message begins"),
        ({"credentials": {"a": {"value": "k", "paths": ["me"]}}}, r"credentials: a: paths\.0: "),
        ({"packages": ["../a"]}, r"packages: '\.\./a' is not a package"),
    ],
)
def test_an_argument_that_is_wrong(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        Sandbox(**arguments)
    assert "pydantic" not in str(caught.value)


def test_the_values_of_variables_are_not_told() -> None:
    for env in (["A=secret"], {"A": b"secret"}):
        with pytest.raises(RequestError) as caught:
            Sandbox(env=env)  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)


def test_what_code_reaches() -> None:
    key = {"b:443": Credential(value=SecretStr("k"))}
    plain, hosts, held = (
        SandboxConfig(network=each, credentials=more)
        for each, more in ((True, {}), (["a", "observe"], {}), (False, key))
    )
    assert (plain.proxied, plain.host_network, plain.allowed_hosts) == (False, True, ())
    assert (hosts.proxied, hosts.host_network, hosts.allowed_hosts) == (True, False, ("a",))
    assert (held.proxied, held.host_network, held.allowed_hosts) == (True, False, ())
    assert SandboxConfig(network="observe").allowed_hosts == ()
    assert network_in_words(True, key) == "The network can be used."
    assert network_in_words(False) == network_in_words("observe") == "There is no network."
    assert network_in_words(["a", "observe"], key).endswith("these hosts and no others: a, b:443.")
    assert network_in_words(["a"] * 50).endswith(" a, a.")
    assert network_in_words(["a"] * 52).endswith(" a, a and 2 more.")


def test_a_workspace_is_shared_or_kept_apart(tmp_path: Path) -> None:
    direct = SandboxConfig(workspace=tmp_path)
    overlay = SandboxConfig(workspace=str(tmp_path), workspace_mode="overlay")
    assert (direct.shared_workspace, overlay.shared_workspace) == (tmp_path, None)
    assert direct.model_copy(update={"copied": True}).shared_workspace is None
    assert (direct.of_fork.workspace, overlay.of_fork.workspace) == (None, tmp_path)
    moved = Sandbox.from_config(direct.model_copy(update={"place": "/elsewhere", "bundles": True}))
    assert (moved.config.place, moved.config.bundles, moved.config.workspace) == ("/elsewhere", True, tmp_path)


def test_limits_may_be_a_mapping_of_what_differs() -> None:
    assert Sandbox(limits={"wall_seconds": 3}).limits == Limits(wall_seconds=3)


async def test_code_that_is_no_text(sandbox: Sandbox) -> None:
    for code in (b"1", None, 1):
        with pytest.raises(RequestError, match=f"code={code!r} is a {type(code).__name__}, and text was expected"):
            await sandbox.run(code)  # type: ignore[arg-type]


async def test_a_timeout_that_is_none(sandbox: Sandbox) -> None:
    wrong: list[Any] = ["5", -1, 0, float("nan"), float("inf"), True, decimal.Decimal(1)]
    for timeout in wrong:
        with pytest.raises(RequestError, match=r"timeout=.* is not a number of seconds above 0"):
            await sandbox.run("1", timeout=timeout)


async def test_a_language_that_is_no_name(sandbox: Sandbox) -> None:
    with pytest.raises(RequestError, match="language=None is not the name"):
        await sandbox.run("1", language=None)  # type: ignore[arg-type]


@on_each_engine
async def test_a_workspace_that_cannot_be(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path, said in [
        (file, "is a file"),
        (file / "below", "cannot be made: Not a directory"),
        (tmp_path / "a\0b", "cannot be made: .*null"),
        (tmp_path / ("x" * 300), "cannot be made: File name too long"),
    ]:
        sandbox = place.sandbox(workspace=path)
        with pytest.raises(RequestError, match=f"^The workspace .* {said}"):
            await sandbox.start()


async def test_a_workspace_of_the_system_is_told_of_as_one(place: Place) -> None:
    for workspace in ("/", "/usr", "/usr/bin"):
        with pytest.raises(RequestError, match=rf"^The workspace '{workspace}' is a home or system folder"):
            await place.sandbox(workspace=workspace).start()


@on_each_engine
async def test_a_closed_sandbox_says_so(place: Place) -> None:
    sandbox = place.sandbox()
    async with sandbox, sandbox.session() as session:
        assert (await sandbox.run("1")).value == 1
    for use in (sandbox.run("1"), session.run("1"), sandbox.start(), sandbox.session().run("1")):
        with pytest.raises(RequestError, match="is closed"):
            await use
    await sandbox.close()
    assert sandbox.wall


@on_each_engine
async def test_a_language_that_nobody_runs_is_refused(sandbox: Sandbox) -> None:
    async with sandbox.session() as session:
        for place in (sandbox, session):
            with pytest.raises(RequestError, match="does not run 'cobol'; it runs python"):
                await place.run("1", language="cobol")


async def test_a_language_that_only_another_engine_runs_is_refused() -> None:
    pytest.importorskip("pydantic_monty")
    async with Sandbox(engine="monty") as sandbox, sandbox.session() as session:
        for place in (sandbox, session):
            with pytest.raises(RequestError, match=r"'monty' runs only Python, and this is 'sh'\. engine='cpython'"):
                await place.run("echo 1", language="sh")


@on_each_engine
async def test_under_the_restricted_policy_no_other_language_is_allowed(place: Place) -> None:
    async with place.sandbox(policy="restricted") as sandbox:
        for language in ("sh", "ruby"):
            result = await sandbox.run("1", language=language)
            assert (result.outcome, result.exit_code) == (Outcome.REJECTED, 126)


@pytest.mark.parametrize("name", ["processes", "open_files", "file_bytes"])
def test_a_limit_that_an_engine_does_not_have(name: str) -> None:
    with pytest.raises(RequestError, match=f"the engine 'monty' has no {name}; leave that out"):
        Sandbox(engine="monty", limits={name: 65_536 if name == "file_bytes" else 64})
    Sandbox(engine="monty", limits={"wall_seconds": 3})
