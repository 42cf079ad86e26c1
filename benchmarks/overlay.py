"""Measure what it takes to open a large folder whose changes are kept apart, and to list them.

python benchmarks/overlay.py [--files N] [--mib N] [--rounds N] [--wall NAME] [--folder DIR]

In turn, `rounds` times: a session without a workspace, one with the folder as an overlay, and a copy of the folder by
`cp -a`, which is what keeps changes apart otherwise. Then what a changed file costs: `changes` and `diff`. A line shows
the median with the least and the most. The folder is made anew with random files, or is that of `--folder`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from coderoom.sandbox import Sandbox

A_FOLDER = 100


def make(folder: Path, files: int, size: int) -> None:
    """Fill a folder."""
    data = os.urandom(size // files)
    for number in range(files):
        below = folder / f"d{number // A_FOLDER}"
        below.mkdir(exist_ok=True)
        (below / f"f{number}").write_bytes(data)


def shown(name: str, seconds: Sequence[float]) -> str:
    """A line of the table."""
    least, middle, most = (1000 * each for each in (min(seconds), statistics.median(seconds), max(seconds)))
    return f"{name:<28}{middle:>10.1f} ms   ({least:.1f} to {most:.1f})"


async def measure(folder: Path, wall: str, rounds: int) -> dict[str, list[float]]:
    """Measure everything in turn."""
    names = ("session without a folder", "session with an overlay", "copy of the folder", "changes", "diff")
    found: dict[str, list[float]] = {name: [] for name in names}
    plain, overlay = Sandbox(wall), Sandbox(wall, workspace=folder, workspace_mode="overlay")
    async with plain, overlay:
        for _ in range(rounds):
            for name, sandbox in zip(names, (plain, overlay), strict=False):
                begin = perf_counter()
                async with sandbox.session() as session:
                    found[name].append(perf_counter() - begin)
                    result = await session.run("open('d0/f0', 'ab').write(b'more')" if sandbox is overlay else "1")
                    assert result.success, result.output
                    if sandbox is overlay:
                        begin = perf_counter()
                        assert len(await session.changes()) == 1
                        found["changes"].append(perf_counter() - begin)
                        begin = perf_counter()
                        await session.diff()
                        found["diff"].append(perf_counter() - begin)
            with tempfile.TemporaryDirectory(dir=folder.parent) as copy:
                begin = perf_counter()
                await asyncio.to_thread(subprocess.run, ["cp", "-a", str(folder), copy], check=True)
                found["copy of the folder"].append(perf_counter() - begin)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    made = Path(tempfile.mkdtemp(prefix="coderoom-overlay-")) if given.folder is None else None
    try:
        folder = given.folder
        if made is not None:
            folder = made / "folder"
            folder.mkdir()
            make(folder, given.files, given.mib << 20)
        for name, seconds in asyncio.run(measure(folder, given.wall, given.rounds)).items():
            print(shown(name, seconds))
    finally:
        if made is not None:
            shutil.rmtree(made)


if __name__ == "__main__":
    main()
