"""Working memory: a small document of facts that the agent keeps; `memory.working_memory`.

`document`, `patch` and `schema` are pure; options are checked by them. `store` reads and writes, `prompt` shows, `api` is public.
"""
