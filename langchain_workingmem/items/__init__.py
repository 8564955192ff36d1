"""The items of a LangGraph store: reads, writes and searches for `RedisMemoryStore`."""
