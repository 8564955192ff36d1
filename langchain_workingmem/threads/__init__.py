"""Threads: who owns a conversation, its title and metadata, its clones; `memory.threads`."""
