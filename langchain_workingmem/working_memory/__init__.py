"""Working memory: a small document of facts that the agent keeps. `document` and `schema` are pure."""
