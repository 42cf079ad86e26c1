"""The engine `remote`: sandboxes of a server that `coderoom sandbox serve` has started."""
