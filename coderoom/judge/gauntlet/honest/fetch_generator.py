"""fetch: It collects what an async generator gives."""

async def each(names, load):
    for name in names:
        yield name, load(name)


async def fetch(names, load):
    return {name: value async for name, value in each(names, load)}
