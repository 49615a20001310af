"""Every table that holds facts of hub and arena, for SQLite and PostgreSQL alike (SQLAlchemy Core).

Times are integers, milliseconds since 1970 UTC. JSON is text, written with sorted keys and no spaces, so that equal
content is equal bytes. Two kinds of tables: the hub's and the arena's facts; and the match log, to which rows are only
ever added. What is computed from them stands in `palus.store.derived`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only for INTEGER
SHA256 = String(64)
COMMIT = String(40)

# ---------------------------------------------------------------------------------------------------------------- hub

accounts = Table(
    "accounts",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("name", String(96), nullable=False),
    Column("key", String(96), nullable=False, unique=True, comment="name in lower case: names differ ignoring case"),
    Column("kind", String(8), nullable=False, comment="user or org"),
    Column("created_ms", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("account_id", ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("label", String(96), nullable=False),
    Column("sha256", SHA256, nullable=False, unique=True, comment="of the token; the token itself is never stored"),
    Column("scopes", String(96), nullable=False, comment="of read, write, runner, trusted, admin; separated by commas"),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
)

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", SHA256, primary_key=True, comment="name of the bytes in the blob folder"),
    Column("size", BigInteger, nullable=False),
    Column("git_sha1", COMMIT, nullable=False, comment="id that git gives a blob of these bytes"),
    Column("created_ms", BigInteger, nullable=False),
    Column("pinned", Boolean, nullable=False, comment="a match named them, or they were here before: never swept"),
)

# Who brought bytes to the hub: whoever did may commit them by their hash alone, and they count against a daily quota.
blob_claims = Table(
    "blob_claims",
    metadata,
    Column("sha256", ForeignKey("blobs.sha256", ondelete="CASCADE"), primary_key=True),
    Column("account_id", ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_blob_claims_account_id_created_ms", "account_id", "created_ms"),
)

repos = Table(
    "repos",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("kind", String(8), nullable=False, comment="model or dataset"),
    Column("owner_id", ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(200), nullable=False, comment="owner/name"),
    Column("key", String(200), nullable=False, comment="name in lower case"),
    Column("private", Boolean, nullable=False),
    Column("head", COMMIT, comment="newest commit"),
    Column("card", Text, nullable=False, comment="JSON of README.md's front matter at head"),
    Column("library_name", String(96)),
    Column("downloads", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False, comment="when head last moved"),
    Column("used_bytes", BigInteger, nullable=False, comment="of its files with their history, and of their lists"),
    UniqueConstraint("kind", "key"),
)

repo_tags = Table(
    "repo_tags",
    metadata,
    Column("repo_id", ForeignKey("repos.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(200), primary_key=True),
    Index("ix_repo_tags_tag", "tag"),
)

commits = Table(
    "commits",
    metadata,
    Column("id", COMMIT, primary_key=True),
    Column("repo_id", ForeignKey("repos.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("number", Integer, nullable=False, comment="0 for the first of its repository"),
    Column("parent", COMMIT),
    Column("title", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("author", String(96), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("repo_id", "number"),
)

commit_files = Table(
    "commit_files",
    metadata,
    Column("commit_id", ForeignKey("commits.id", ondelete="CASCADE"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("sha256", ForeignKey("blobs.sha256"), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("lfs", Boolean, nullable=False, comment="came by LFS; decides the id that clients see"),
)

# -------------------------------------------------------------------------------------------------------------- arena

entries = Table(
    "entries",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("source", String(8), nullable=False, comment="hub, hf, folder or house"),
    Column("repo", String(200), nullable=False, comment="owner/name"),
    Column("owner", String(96), nullable=False),
    Column("revision", COMMIT, nullable=False, comment="commit; for folders and house players derived from the bytes"),
    Column("env", String(64), nullable=False),
    Column("files", Text, nullable=False, comment="JSON: SHA-256 of the rated entity's files by behavior"),
    Column("sha256", SHA256, comment="the rated entity: of the first files that compute the same"),
    Column("file_sha256", SHA256, comment="of the files as they were pushed"),
    Column("computation", SHA256, comment="of what it computes, however that is written down; null before its check"),
    Column("state", String(10), nullable=False, comment="pending, waiting, accepted, refused or withdrawn"),
    Column("code", String(40), comment="of the refusal"),
    Column("sentence", Text),
    Column("remedy", Text),
    Column("details", Text, nullable=False, comment="JSON: what validation measured"),
    Column("pushed_ms", BigInteger, nullable=False),
    Column("checked_ms", BigInteger),
    UniqueConstraint("repo", "revision", "env"),
    Index("ix_entries_sha256", "sha256"),
    Index("ix_entries_file_sha256", "file_sha256"),
    Index("ix_entries_computation", "computation"),
    Index("ix_entries_state", "state"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("kind", String(10), nullable=False, comment="validate, pair, or audit: a logged pair once more"),
    Column("key", String(200), nullable=False, unique=True, comment="the same work is queued once"),
    Column("env", String(64), nullable=False, server_default="SoccerTwos", comment="game that it takes to do it"),
    Column("payload", Text, nullable=False, comment="JSON"),
    Column("state", String(8), nullable=False, comment="ready, leased, reported, disputed, done or failed"),
    Column("priority", Integer, nullable=False, comment="larger first"),
    Column("trusted_only", Boolean, nullable=False, server_default=false(), comment="not for every worker"),
    Column("not_for", String(96), comment="account whose workers may not have it: they played what is audited"),
    Column("attempts", Integer, nullable=False),
    Column("worker", String(96)),
    Column("lease", String(32), comment="secret of the present lease; a result must show it"),
    Column("leased_ms", BigInteger, comment="when its worker took it"),
    Column("lease_until_ms", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
    Column("done_ms", BigInteger),
    Column("fault", Text, comment="why it failed"),
    Column("report", Text, comment="JSON: what a worker handed in, until it is linked into the log"),
    Index("ix_jobs_state_priority", "state", "priority"),
)

workers = Table(
    "workers",
    metadata,
    Column("name", String(96), primary_key=True),
    Column("isolation", String(40), nullable=False),
    Column("platform", Text, nullable=False, comment="JSON: system, Python, runtime versions"),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
    Column("matches", BigInteger, nullable=False),
    Column("trusted", Boolean, nullable=False, server_default=false(), comment="gets what cannot be checked later"),
    Column("suspended", Text, comment="why its results no longer count"),
    Column("jobs", Integer, nullable=False, server_default="1", comment="that it takes at once"),
)

# The log. `seq` gives the order, `hash` = sha256(prev_hash + "\n" + record) chains it.
matches = Table(
    "matches",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("id", String(32), nullable=False, unique=True),
    Column("unit_id", String(32), nullable=False, index=True),
    Column("leg", Integer, nullable=False),
    Column("env", String(64), nullable=False),
    Column("season", Integer, nullable=False),
    Column("blue", SHA256, nullable=False, comment="rated entity"),
    Column("purple", SHA256, nullable=False),
    Column("result", String(10), nullable=False),
    Column("rated", Boolean, nullable=False, comment="false: exhibition, same owner, entry test, void"),
    Column("worker", String(96), nullable=False),
    Column("finished_ms", BigInteger, nullable=False),
    Column("record", Text, nullable=False, comment="the whole record, canonical JSON"),
    Column("actions", LargeBinary, comment="its action log, deflated; of older matches a blob has it"),
    Column("prev_hash", SHA256, nullable=False),
    Column("hash", SHA256, nullable=False),
    Index("ix_matches_blue_seq", "blue", "seq"),
    Index("ix_matches_purple_seq", "purple", "seq"),
    Index("ix_matches_env_seq", "env", "seq"),
)

# Which declaration each table of `palus.store.derived` was made from.
derived_tables = Table(
    "derived_tables",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("digest", SHA256, nullable=False, comment="of its columns as they were declared"),
)

# Where the log and the annulments end: what is cut off them, or put in behind palus's back, is missed here.
log_heads = Table(
    "log_heads",
    metadata,
    Column("name", String(16), primary_key=True, comment="of the table: matches or annulments"),
    Column("seq", BigInteger, nullable=False, comment="how many rows it has"),
    Column("hash", SHA256, nullable=False, comment="of the newest match, or of all annulments"),
)

# Matches that an audit or an administrator struck out. Added to, never changed: the log itself keeps the match.
annulments = Table(
    "annulments",
    metadata,
    Column("match_id", String(32), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
