"""Derived rows: what models have made of messages, with the messages behind it. Wings import the modules by their names."""

from langchain_workingmem.derived.rows import ROW_KINDS, export_rows, note_deleted, note_given, restore_rows

__all__ = ["ROW_KINDS", "export_rows", "note_deleted", "note_given", "restore_rows"]
