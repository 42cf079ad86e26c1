"""The part of the network that code may use: a proxy beside the sandbox, and the decision what it lets through."""
