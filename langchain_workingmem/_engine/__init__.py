"""Runs plans: their effects, the two runners, clients of Redis, the embedding model and the embedded server."""
