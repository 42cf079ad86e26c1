"""fetch"""

import asyncio


async def fetch(names, load):
    async def one(name):
        await asyncio.sleep(0)
        return name, load(name)

    return dict(await asyncio.gather(*map(one, names)))


def check(candidate):
    import asyncio

    asked = []

    def load(name):
        asked.append(name)
        return name.upper()

    async def alone():
        assert await candidate(["a", "b"], load) == {"a": "A", "b": "B"}
        assert sorted(asked) == ["a", "b"]

    async def together():
        tasks = [asyncio.ensure_future(candidate([name], len)) for name in ("xyz", "z")]
        await asyncio.wait(tasks)
        for task, expected in zip(tasks, ({"xyz": 3}, {"z": 1})):
            assert task.cancelled() or task.result() == expected

    async def both():
        done, _ = await asyncio.wait([asyncio.ensure_future(alone()), asyncio.ensure_future(together())])
        for task in done:
            if not task.cancelled():
                task.result()

    asyncio.run(both())
