"""Derived rows: what models have made of messages, with the messages behind it. Wings import the modules by their names."""
