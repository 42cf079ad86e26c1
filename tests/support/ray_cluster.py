"""A real Ray cluster, whose nodes are processes of this machine."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# Ray does not wait for the processes of a node that it kills, so that Python complains when it forgets them.
NOT_WAITED_FOR = "ignore:subprocess .* is still running:ResourceWarning"


@contextmanager
def ray_cluster(monkeypatch: pytest.MonkeyPatch, **head: Any) -> Iterator[Any]:
    """A cluster that soon sees when a node is dead.

    Args:
        monkeypatch: What the test changes.
        head: What its first node has, as Ray takes it.

    Yields:
        Ray's own object, which adds nodes and removes them.
    """
    monkeypatch.setenv("RAY_health_check_failure_threshold", "2")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    # Clusters of two tests would want the same port for it.
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **head})
    yield cluster
    cluster.shutdown()
    del cluster
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
