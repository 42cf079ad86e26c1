"""Runs in Studio's playground whose code is in containers of Docker: they end as others do, and leave no container."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.agents.helpers import python
from tests.studio.driving import Run, Studio
from tests.studio.teams import ACT, CODING, EXECUTOR, ROUND, agent, part, replay, sandbox, team
from tests.studio.test_ends import ENDLESS, SECONDS, SHELL
from tests.support.docker import client, find_engine, find_image
from tests.support.studio import Studio as Server
from tests.support.studio import end, start_studio, wait_for

pytestmark = [pytest.mark.studio, pytest.mark.docker]

WHERE = python("import os, sys\nprint(os.path.exists('/.dockerenv'), sys.prefix, 6 * 7)")

IMAGE = f"coderoom-studio-test:{uuid.uuid4().hex[:8]}"

Json = dict[str, Any]
Make = Callable[[str, str, Path], Json]
"""Makes an agent that writes this, and works with this image in this folder."""


def walled(folder: Path, image: str) -> Json:
    return sandbox(folder, wall="docker", options={"image": image})


def raw(folder: Path, image: str, **config: Any) -> Json:
    provider = "autogen_ext.code_executors.docker.DockerCommandLineCodeExecutor"
    return part("code_executor", provider, image=image, work_dir=str(folder), timeout=60, **config)


def writes(code: str, image: str, folder: Path) -> Json:
    return agent(EXECUTOR, "coder", model_client=replay(code, "Done."), code_executor=walled(folder, image))


def acts(code: str, image: str, folder: Path) -> Json:
    models = {"model_client": replay(code, "Done."), "model_client_stream": True}
    return agent(ACT, "coder", **models, code_executor=walled(folder, image))


def autogens_agent(code: str, image: str, folder: Path) -> Json:
    provider = "autogen_agentchat.agents.CodeExecutorAgent"
    models = {"model_client": replay(code, "Done."), "model_client_stream": True}
    return agent(provider, "coder", **models, code_executor=walled(folder, image))


def autogens_executor(code: str, image: str, folder: Path) -> Json:
    return agent(EXECUTOR, "coder", model_client=replay(code, "Done."), code_executor=raw(folder, image))


SANDBOXED: dict[str, Make] = {
    "the sandbox": writes,
    "the sandbox in a session": acts,
    "the sandbox under AutoGen's agent": autogens_agent,
}
AGENTS: dict[str, Make] = {**SANDBOXED, "AutoGen's executor": autogens_executor}


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    with closing(client(find_engine())) as engine:
        yield engine


@pytest.fixture(scope="module")
def image(engine: Any) -> str:
    # A name of its own, since other tests use the same engine at the same time.
    engine.tag(find_image(find_engine()), *IMAGE.split(":"), force=True)
    return IMAGE


@contextmanager
def studio(folder: Path) -> Iterator[Server]:
    with start_studio(folder / "app", "--no-browser", cwd=folder, env={"DOCKER_HOST": find_engine()}) as server:
        yield server


@pytest.fixture(scope="module")
def driver(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with studio(tmp_path_factory.mktemp("studio")) as server:
        driver = Studio(server.url)
        yield driver
        driver.close()


@pytest.fixture(autouse=True)
def none_is_left(engine: Any) -> Iterator[None]:
    before = containers(engine)
    yield
    left = containers(engine) - before
    for identity in left:
        engine.remove_container(identity, force=True)
    assert left == set()


def containers(engine: Any) -> set[str]:
    return {container["Id"] for container in engine.containers(all=True) if container["Image"] == IMAGE}


@contextmanager
def stuck(engine: Any, driver: Studio, component: Json, folder: Path) -> Iterator[tuple[Run, set[str]]]:
    """A run whose code does not end, and the container that it is in."""
    before = containers(engine)
    with driver.running(component, "Go.") as run:
        wait_for((folder / "begun").exists)
        made = containers(engine) - before
        assert len(made) == 1
        yield run, made


@pytest.mark.parametrize(("which", "kind"), list(zip(AGENTS, cycle([CODING, ROUND]), strict=False)))
def test_code_runs_in_a_container(
    which: str, kind: str, engine: Any, image: str, driver: Studio, tmp_path: Path
) -> None:
    before = containers(engine)
    run = driver.run(team(kind, AGENTS[which](WHERE, image, tmp_path)), "Compute it.")
    assert run.record()["status"] == "complete"
    assert "True /usr 42" in json.dumps(run.events[-1])
    wait_for(lambda: containers(engine) <= before, SECONDS)


@pytest.mark.parametrize(("which", "code"), list(zip(SANDBOXED, cycle([ENDLESS, SHELL]), strict=False)))
def test_stop_ends_it_at_once(which: str, code: str, engine: Any, image: str, driver: Studio, tmp_path: Path) -> None:
    with stuck(engine, driver, team(CODING, AGENTS[which](code, image, tmp_path)), tmp_path) as (run, made):
        run.stop()
        while run.next(SECONDS)["type"] != "completion":
            pass
        assert run.wait_for_record(SECONDS)["status"] == "stopped"
        wait_for(lambda: not made & containers(engine), SECONDS)


@pytest.mark.parametrize("which", SANDBOXED)
def test_a_closed_tab_ends_it(which: str, engine: Any, image: str, driver: Studio, tmp_path: Path) -> None:
    with stuck(engine, driver, team(ROUND, AGENTS[which](ENDLESS, image, tmp_path)), tmp_path) as (run, made):
        run.close_tab()
        wait_for(lambda: not made & containers(engine), SECONDS)
        assert run.wait_for_record(SECONDS)["status"] == "stopped"


@pytest.mark.parametrize(
    ("which", "how"),
    [
        ("the sandbox in a session", "the server is killed"),
        ("the sandbox under AutoGen's agent", "the command is ended"),
        ("the sandbox", "the command is killed"),
    ],
)
def test_nothing_is_left_of_it_when(which: str, how: str, engine: Any, image: str, tmp_path: Path) -> None:
    with studio(tmp_path) as server, closing(Studio(server.url)) as driver:
        component = team(CODING, AGENTS[which](ENDLESS, image, tmp_path / "work"))
        with stuck(engine, driver, component, tmp_path / "work") as (_, made):
            end(server, how)
            wait_for(lambda: not made & containers(engine), 20)
