"""One turn: what the store holds for it is gathered, and a context for the model assembled."""
