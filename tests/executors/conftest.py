from __future__ import annotations

from tests.support.docker import docker_host, docker_image

__all__ = ["docker_host", "docker_image"]
