"""`python -m langchain_workingmem.cli`."""

from langchain_workingmem.cli import app

app(prog_name="workingmem")
