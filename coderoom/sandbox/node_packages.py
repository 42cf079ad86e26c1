"""Packages of npm that code asks for: installed once for a set, outside of the sandbox, and shared by all sandboxes.

They lie beside the environments of `packages`, in the same cache. No code of a package runs while they are installed:
npm runs no scripts, and takes packages of its registry only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from coderoom._util.temporary import remove_folder
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.packages import (
    MARK,
    digest_of,
    is_whole,
    locked,
    made_cache_folder,
    make_space,
    reporting,
    run_installer,
    size_of,
)
from coderoom.sandbox.requirements import node_package

_HOOK_NAME: Final = ".coderoom.js"
_QUIET: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
# Packages from elsewhere than the registry: Git runs programs, and an address may be this machine's. Older versions of
# npm do not know the first ones, and pass over them.
_OF_REGISTRY: Final = ("--allow-git=none", "--allow-remote=none", "--allow-file=none", "--git=false")
# With the last one, the lock file has an address for what is not of the registry only.
_OURS: Final = (
    "--global=false",
    "--workspaces=false",
    "--package-lock",
    "--omit=dev",
    "--omit-lockfile-registry-resolved",
)
# A module of ECMAScript does not look into `NODE_PATH`. Every program of Node loads this file first.
_HOOK: Final = """\
const {pathToFileURL} = require("url"), {register, registerHooks} = require("module");
const place = {parentURL: pathToFileURL(__dirname) + "/_.js"};
// A file like this one that was loaded before belongs to packages that these replace: it must not look for them.
const first = {coderoom: true}, missing = (error, context) => {
    if (!error || error.code !== "ERR_MODULE_NOT_FOUND") return false;
    error.stack = String(error.stack).split("\\n    at ")[0];  // The rest is none of the code's.
    return !context.coderoom;
};
if (registerHooks) registerHooks({resolve(name, context, next) {
    const given = {...context};
    try {
        return next(name, {...given, ...first});
    } catch (error) {
        try { if (missing(error, given)) return next(name, {...given, ...first, ...place}); } catch {}
        throw error;
    }
}});
else if (register) register("data:text/javascript," + encodeURIComponent(`
    const missing = ${missing}, first = ${JSON.stringify(first)}, place = ${JSON.stringify(place)};
    export const resolve = (name, context, next) => {
        const given = {...context};
        return next(name, {...given, ...first}).catch(error => missing(error, given)
            ? next(name, {...given, ...first, ...place}).catch(() => { throw error; }) : Promise.reject(error));
    };
`));
"""
_NOBODY: Final = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET|ENOTCACHED")
_UNKNOWN: Final = re.compile(r"E404|ETARGET")
_NO_NEWS: Final = re.compile(r"(?m)^npm (error|ERR!) (A complete log|code|errno|syscall|$).*\n?|^npm (error|ERR!) ?")


class NodeModules(NamedTuple):
    """Installed packages of npm.

    Attributes:
        folder: The folder `node_modules` that they are in.
        lock: What was resolved: a line for each package, as `packages` takes it.
    """

    folder: Path
    lock: str

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables with which all programs of Node find them, where those of `env` are set."""
        hook = f"--require={json.dumps(str(self.folder / _HOOK_NAME))}"
        return {"NODE_PATH": str(self.folder), "NODE_OPTIONS": f"{hook} {env.get('NODE_OPTIONS', '')}".strip()}


async def node_modules_with(packages: Sequence[str]) -> NodeModules:
    """The folder that has packages of npm; they are installed if it is not there.

    Args:
        packages: The packages, such as `npm:left-pad@1`.

    Raises:
        RequestError: There is no such package, or it needs one that is not of the registry.
        SandboxUnavailable: They cannot be fetched or stored.
        MissingDependencyError: There is no npm.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise MissingDependencyError("packages of npm need npm: apt-get install npm")
    wanted = sorted(set(packages))
    folder = await asyncio.to_thread(made_cache_folder)
    with reporting(folder):
        place = folder / digest_of("npm", _HOOK, *wanted)
        if not is_whole(place):
            async with locked(place) as busy:
                if not is_whole(place):
                    await asyncio.to_thread(remove_folder, place)
                    await asyncio.to_thread(make_space)
                    place.mkdir()
                    try:
                        await _install(npm, place, _manifest(wanted), busy)
                    except BaseException:
                        await asyncio.to_thread(remove_folder, place)
                        raise
        os.utime(place / MARK)
        return NodeModules(place / "node_modules", (place / "requirements.lock").read_text("utf-8"))


def _manifest(wanted: Sequence[str]) -> dict[str, Any]:
    """The `package.json` that asks for packages; one inside of another (`npm:outer>inner@1`) is an override."""
    dependencies: dict[str, str] = {}
    overrides: dict[str, Any] = {}
    for each in wanted:
        (*outer, name), versions = node_package(each)
        if not outer:
            dependencies[name] = versions
            continue
        inside = overrides
        for folder in outer:
            inside = inside.setdefault(folder, {})
        inside.setdefault(name, {})["."] = versions
    return {"private": True, "dependencies": dependencies, "overrides": overrides}


async def _install(npm: str, place: Path, manifest: Mapping[str, Any], busy: int) -> None:
    (place / "package.json").write_text(json.dumps(manifest), "utf-8")
    options = [*_QUIET, *_OF_REGISTRY, *_OURS, f"--prefix={place}"]
    await _run([npm, "install", "--package-lock-only", *options], place, busy)
    lock = _lock_of(json.loads((place / "package-lock.json").read_text("utf-8")))
    await _run([npm, "ci", *options], place, busy)
    record = place / "node_modules" / ".package-lock.json"
    record.parent.mkdir(exist_ok=True)
    record.touch()
    hook = place / "node_modules" / _HOOK_NAME
    hook.write_text(_HOOK, "utf-8")
    (place / "requirements.lock").write_text(lock, "utf-8")
    records = {str(each.relative_to(place)): each.stat().st_size for each in (record, hook)}
    facts = {"python": "npm", "records": records, "seconds": time.time(), "size": size_of(place)}
    (place / MARK).write_text(json.dumps(facts), "utf-8")


def _lock_of(resolved: Mapping[str, Any]) -> str:
    """The packages that npm has resolved, with exact versions.

    Raises:
        RequestError: One is not of the registry.
    """
    lines = []
    for path, facts in resolved["packages"].items():
        if not path:
            continue
        names = [each.strip("/") for each in path.split("node_modules/") if each]
        if "link" in facts or "resolved" in facts or "integrity" not in facts:
            raise RequestError(f"packages: npm:{names[-1]} is not of npm's registry: {facts.get('resolved')!r:.200}.")
        if "name" not in facts:  # Under another name it is found only as what needs it says.
            lines.append(f"npm:{'>'.join(names)}@{facts['version']}\n")
    return "".join(sorted(lines))


async def _run(command: Sequence[str], place: Path, busy: int) -> None:
    try:
        await run_installer(busy, command, folder=place)
    except RequestError as error:
        said = str(error).partition(": ")[2]
        words = _NO_NEWS.sub("", said).strip() or said
        if _NOBODY.search(said):
            raise SandboxUnavailable(f"The packages of npm can be fetched from no registry: {words}") from None
        if _UNKNOWN.search(said):
            raise RequestError(f"packages: npm has no such package or version. {words.splitlines()[0]}") from None
        raise RequestError(f"packages: npm: {words}") from None
