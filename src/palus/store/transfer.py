"""Moves all rows between databases, of the same or of different kinds."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select, text

from palus.store.tables import derived_tables, metadata

ROWS_AT_ONCE = 1000


def copy_rows(source: Connection, target: Connection) -> int:
    """Copy every row of every table into the empty tables of `target`. Returns how many.

    source: in one snapshot, or the tables may not fit together. target: in a transaction. Both of this palus.
    """
    copied = 0
    for table in metadata.sorted_tables:  # what is referred to comes before what refers to it
        if table is derived_tables:
            continue  # how the target's own tables were made
        rows = source.execution_options(stream_results=True, yield_per=ROWS_AT_ONCE).execute(select(table))
        for some in rows.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in some])
            copied += len(some)
    if target.dialect.name == "postgresql":
        _continue_numbering(target)
    return copied


def _continue_numbering(connection: Connection) -> None:
    """PostgreSQL numbers new rows from a sequence, which copied numbers do not move."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is None:
            continue
        largest = connection.execute(select(func.max(column))).scalar()
        if largest is not None:
            connection.execute(
                text("SELECT setval(pg_get_serial_sequence(:table, :column), :largest)"),
                {"table": table.name, "column": column.name, "largest": largest},
            )
