"""One turn: what a model is shown before it answers, and what is saved after it."""
