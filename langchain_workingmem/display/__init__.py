"""How records look in a notebook and in a terminal: one picture of plain text, drawn twice."""
