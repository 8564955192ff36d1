"""The observer at work: what it reads in one call, and how a run of calls goes on."""
