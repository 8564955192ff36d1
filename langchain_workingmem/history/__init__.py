"""Message history: every message of a thread, whole and in order; `memory.history`."""
