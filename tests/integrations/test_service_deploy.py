"""The manifests for Kubernetes: valid by the published schemas, and with a command that serves."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from tests.support.commands import ROOT, environment

FILES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))


def documents(file: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(file.read_text()))


def one(kind: str) -> dict[str, Any]:
    (found,) = (each for file in FILES for each in documents(file) if each["kind"] == kind)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("version", ["1.37.0", "1.31.0"])
def test_a_manifest_fits_the_published_schema(file: Path, version: str) -> None:
    for each in documents(file):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_manifests_name_the_same_pods() -> None:
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    services = [each["spec"]["selector"] for file in FILES for each in documents(file) if each["kind"] == "Service"]
    others = [one("PodDisruptionBudget")["spec"]["selector"], one("NetworkPolicy")["spec"]["podSelector"]]
    for selector in [*services, *(each["matchLabels"] for each in others)]:
        assert selector == labels
    assert one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == one("Deployment")["metadata"]["name"]


@pytest.mark.slow
def test_the_command_of_the_pods_serves_and_fits_the_probes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    pod = one("Deployment")["spec"]["template"]["spec"]
    container, secret = pod["containers"][0], one("Secret")["stringData"]
    (tmp_path / "tenants.yaml").write_text(secret["tenants.yaml"])
    here = {
        "0.0.0.0": "127.0.0.1",
        "8080": port,
        "/etc/coderoom": str(tmp_path),
        "$(POD_IP)": "127.0.0.1",
        "coderoom-peers": "127.0.0.1",
    }
    arguments = container["args"]
    for there, place in here.items():
        arguments = [each.replace(there, place) for each in arguments]
    env = environment({"CODEROOM_PEERS_SECRET": secret["peers-secret"]})
    command = [sys.executable, "-m", "coderoom", *arguments]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            for probe in ("startupProbe", "readinessProbe"):
                assert httpx.get(url + container[probe]["httpGet"]["path"]).status_code == 200
            operator = {"X-API-Key": "replace-this-token-3"}
            metric = one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"]
            assert f"\n{metric}{{" in httpx.get(url + "/metrics", headers=operator).text
        finally:
            server.send_signal(signal.SIGINT)
    drains = int(next(each for each in arguments if each.startswith("--drain-seconds=")).partition("=")[2])
    assert pod["terminationGracePeriodSeconds"] > drains + 20
