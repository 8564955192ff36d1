"""Storage operations as generators of effects: no I/O, no clock, no randomness in here."""
