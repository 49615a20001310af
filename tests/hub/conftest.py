"""Lets tests of the hub begin with databases whose tables are there."""

from ready_tables import ready_tables, store, tables  # noqa: F401
