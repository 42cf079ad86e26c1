"""fetch: Threads of its own do the work, and the loop calls back."""

import asyncio
import concurrent.futures


async def fetch(names, load):
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        keys = await asyncio.gather(*(loop.run_in_executor(pool, str, name) for name in names))
    return {key: load(key) for key in keys}
