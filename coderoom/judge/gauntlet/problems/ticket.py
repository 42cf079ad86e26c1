"""ticket"""

def ticket(prefix):
    number = 0
    while True:
        number += 1
        yield f"{prefix}-{number:03}"


def check(candidate):
    import itertools

    tickets = candidate("A")
    assert next(tickets) == "A-001"
    assert list(itertools.islice(tickets, 2)) == ["A-002", "A-003"]
    assert next(candidate("B")) == "B-001"
    assert iter(tickets) is tickets
    tickets.close()
    assert list(tickets) == []
