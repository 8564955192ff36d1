"""Files of `memory.files` for other agents: each adapter is a module of its own, and needs its package only then."""
