"""The sandbox as a service: `coderoom sandbox serve`.

server.py    the application: who may come in, the routes, metrics, the end
tenants.py   tokens, what each tenant may use, a fair queue
boxes.py     sandboxes and sessions of tenants
api.py       the server's own REST API; `Sandbox(engine="remote")` is its client
fusion.py    what callers of SandboxFusion send, and fusion_problems.py what they send about problem sets
streams.py   answers that end with their client, events, calls to functions of the client
files.py     files of a sandbox
failures.py  what clients are told of failures
processes.py programs that stay in a session
e2b/         what E2B's clients send
peers.py     requests for sandboxes of other processes, and workers.py the processes of one machine
usage.py     what tenants use, over all processes, and tracing.py a span for each run
"""

from __future__ import annotations

from coderoom.integrations.tool import missing

try:
    import fastapi  # noqa: F401
except ImportError as error:
    raise missing("FastAPI", "serve") from error

from coderoom.integrations.service.server import SandboxServer
from coderoom.integrations.service.tenants import Tenant, TenantLimits, new_token, read_tenants

__all__ = ["SandboxServer", "Tenant", "TenantLimits", "new_token", "read_tenants"]
