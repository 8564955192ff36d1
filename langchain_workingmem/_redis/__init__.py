"""What is stored in Redis, and how: keys, messages as JSON, indexes, queries, scripts, rights."""
