"""What the Docker wall refuses, and what it says then."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError, SandboxUnavailable

from .common import Start

pytestmark = pytest.mark.docker


@pytest.fixture
def make_image(engine: Any, docker_image: str) -> Iterator[Callable[[str, str | None], str]]:
    """Makes images that have a script in the place of Python, or none."""
    made = []

    def make(name: str, script: str | None) -> str:
        if script is None:
            empty = io.BytesIO()
            tarfile.open(fileobj=empty, mode="w").close()
            engine.import_image_from_data(empty.getvalue(), repository=name, tag="test")
        else:
            container = engine.create_container(docker_image)["Id"]
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                entry = tarfile.TarInfo("usr/local/bin/python3")
                entry.mode, entry.size = 0o755, len(script)
                archive.addfile(entry, io.BytesIO(script.encode()))
            engine.put_archive(container, "/", packed.getvalue())
            engine.commit(container, repository=name, tag="test")
            engine.remove_container(container)
        made.append(f"{name}:test")
        return f"{name}:test"

    yield make
    for image in made:
        engine.remove_image(image)


async def test_an_image_without_python(start: Start, make_image: Callable[[str, str | None], str]) -> None:
    image = make_image("coderoom-nothing", None)
    with pytest.raises(SandboxUnavailable, match=r"(?s)python3.*needs an image with Python 3.8 or later"):
        await start(options={"image": image})


async def test_an_image_with_an_old_python(start: Start, make_image: Callable[[str, str | None], str]) -> None:
    program = "import sys, runpy; sys.version_info = (3, 7, 4); del sys.argv[:3]; "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    image = make_image("coderoom-old", f'#!/bin/sh\nexec /usr/bin/python3 -c "{program}" "$@"\n')
    with pytest.raises(SandboxUnavailable, match=r"'coderoom-old:test' has Python 3\.7\.4; the sandbox needs 3\.8"):
        await start(options={"image": image})


async def test_a_worker_that_never_connects(start: Start, make_image: Callable[[str, str | None], str]) -> None:
    image = make_image("coderoom-failing", "#!/bin/sh\necho some reason >&2\nexit 5\n")
    with pytest.raises(SandboxUnavailable, match=r"failing:test' ended with exit code 5. It wrote: some reason"):
        await start(options={"image": image})


async def test_an_image_that_is_not_there(start: Start) -> None:
    image = "localhost:1/coderoom-none:test"
    with pytest.raises(SandboxUnavailable, match=rf"{image}' is not on this machine. Get it \(docker pull {image}\)"):
        await start(options={"image": image, "pull": False})
    with pytest.raises(SandboxUnavailable, match=r"could not be pulled \(.+\). Get it \(docker pull"):
        await start(options={"image": image})


async def test_a_device_that_is_not_there(start: Start) -> None:
    with pytest.raises(SandboxUnavailable, match=r"The Docker engine failed: .*gpu"):
        await start(options={"gpus": "all"})


async def test_a_runtime_that_is_not_there(start: Start) -> None:
    with pytest.raises(SandboxUnavailable, match=r"(?i)The Docker engine failed: .*nothing-like-it"):
        await start(options={"runtime": "nothing-like-it"})


async def test_a_wrong_option(start: Start) -> None:
    with pytest.raises(RequestError, match=r"there is no 'imagge'; did you mean 'image'\?"):
        await start(options={"imagge": "x"})


@pytest.mark.parametrize("folder", ["/", "/etc"])
async def test_system_folders_are_not_shown(start: Start, folder: str) -> None:
    with pytest.raises(RequestError, match="home or system folder"):
        await start(Path(folder))
    with pytest.raises(RequestError, match="home or system folder"):
        await start(readable=[Path(folder)])


async def test_a_workspace_that_is_not_there(start: Start, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"nowhere' is not a folder; make it first"):
        await start(tmp_path / "nowhere")
