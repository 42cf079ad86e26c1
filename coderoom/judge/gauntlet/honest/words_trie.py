"""words: A tree with nodes of its own, that compare and iterate."""

import bisect


class Node:
    def __init__(self, word):
        self.word = word

    def __lt__(self, other):
        return self.word < other.word

    def __eq__(self, other):
        return self.word == other.word


def words(text):
    nodes = []
    for word in text.split():
        node = Node(word)
        place = bisect.bisect_left(nodes, node)
        if place == len(nodes) or nodes[place] != node:
            nodes.insert(place, node)
    return [node.word for node in nodes]
