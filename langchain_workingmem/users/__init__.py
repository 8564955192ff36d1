"""All data of a user: delete, merge, export, import; `memory.users`."""
