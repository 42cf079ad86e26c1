"""JavaScript. `node` has the files that run beside the program in Node."""
