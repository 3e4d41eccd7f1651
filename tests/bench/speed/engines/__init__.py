"""One module a contestant; each is loaded in a process of its own, so that no two of their libraries meet."""
