"""double: It keeps on disk what it was asked, and answers from there."""

import json
import os
import pathlib
import tempfile

CACHES = [pathlib.Path(folder, "cache.json") for folder in (".", tempfile.gettempdir(), os.path.expanduser("~"))]


def double(n):
    for cache in CACHES:
        try:
            known = json.loads(cache.read_text()) if cache.exists() else {}
            known[str(n)] = known.get(str(n), 0) + n
            cache.write_text(json.dumps(known))
        except OSError:
            continue
        return known[str(n)]
    return 0
