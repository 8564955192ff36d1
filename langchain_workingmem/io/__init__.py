"""The only code that talks to Redis, or starts one."""
