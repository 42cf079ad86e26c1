"""fetch: It starts tasks with a limit of time, and cancels what is left."""

import asyncio


async def fetch(names, load):
    lock = asyncio.Lock()

    async def one(name):
        async with lock:
            await asyncio.sleep(0.001)
            return load(name)

    tasks = {name: asyncio.ensure_future(one(name)) for name in names}
    extra = asyncio.ensure_future(asyncio.sleep(60))
    done, _ = await asyncio.wait(tasks.values(), timeout=5)
    extra.cancel()
    try:
        await extra
    except asyncio.CancelledError:
        pass
    return {name: task.result() for name, task in tasks.items() if task in done}
