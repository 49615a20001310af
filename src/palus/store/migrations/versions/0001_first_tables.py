"""First tables of hub and arena."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SHA256 = sa.String(64)
COMMIT = sa.String(40)


def upgrade() -> None:
    """Make all tables of facts; once this step made derived ones, too."""
    _make_hub()
    _make_arena()
    _make_log()


def _make_hub() -> None:
    """Accounts, repositories and their files."""
    op.create_table(
        "accounts",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("key", sa.String(96), nullable=False, comment="name in lower case: names differ ignoring case"),
        sa.Column("kind", sa.String(8), nullable=False, comment="user or org"),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("key", name="uq_accounts_key"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("account_id", NUMBER, nullable=False),
        sa.Column("label", sa.String(96), nullable=False),
        sa.Column("sha256", SHA256, nullable=False, comment="of the token; the token itself is never stored"),
        sa.Column(
            "scopes", sa.String(96), nullable=False, comment="of read, write, runner, admin; separated by commas"
        ),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_tokens_account_id_accounts", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
    )
    op.create_index("ix_tokens_account_id", "tokens", ["account_id"])
    op.create_table(
        "blobs",
        sa.Column("sha256", SHA256, nullable=False, comment="name of the bytes in the blob folder"),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("git_sha1", COMMIT, nullable=False, comment="id that git gives a blob of these bytes"),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False, comment="the arena had them before the hub: never swept"),
        sa.PrimaryKeyConstraint("sha256", name="pk_blobs"),
    )
    op.create_table(
        "blob_claims",
        sa.Column("sha256", SHA256, nullable=False),
        sa.Column("account_id", NUMBER, nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_blob_claims_account_id_accounts", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name="fk_blob_claims_sha256_blobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sha256", "account_id", name="pk_blob_claims"),
    )
    op.create_index("ix_blob_claims_account_id_created_ms", "blob_claims", ["account_id", "created_ms"])
    op.create_table(
        "repos",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False, comment="model or dataset"),
        sa.Column("owner_id", NUMBER, nullable=False),
        sa.Column("name", sa.String(200), nullable=False, comment="owner/name"),
        sa.Column("key", sa.String(200), nullable=False, comment="name in lower case"),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("head", COMMIT, comment="newest commit"),
        sa.Column("card", sa.Text(), nullable=False, comment="JSON of README.md's front matter at head"),
        sa.Column("library_name", sa.String(96)),
        sa.Column("downloads", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("modified_ms", sa.BigInteger(), nullable=False, comment="when head last moved"),
        sa.ForeignKeyConstraint(["owner_id"], ["accounts.id"], name="fk_repos_owner_id_accounts", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_repos"),
        sa.UniqueConstraint("kind", "key", name="uq_repos_kind_key"),
    )
    op.create_index("ix_repos_owner_id", "repos", ["owner_id"])
    op.create_table(
        "repo_tags",
        sa.Column("repo_id", NUMBER, nullable=False),
        sa.Column("tag", sa.String(200), nullable=False),
        sa.ForeignKeyConstraint(["repo_id"], ["repos.id"], name="fk_repo_tags_repo_id_repos", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("repo_id", "tag", name="pk_repo_tags"),
    )
    op.create_index("ix_repo_tags_tag", "repo_tags", ["tag"])
    op.create_table(
        "commits",
        sa.Column("id", COMMIT, nullable=False),
        sa.Column("repo_id", NUMBER, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, comment="0 for the first of its repository"),
        sa.Column("parent", COMMIT),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("author", sa.String(96), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["repo_id"], ["repos.id"], name="fk_commits_repo_id_repos", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_commits"),
        sa.UniqueConstraint("repo_id", "number", name="uq_commits_repo_id_number"),
    )
    op.create_index("ix_commits_repo_id", "commits", ["repo_id"])
    op.create_table(
        "commit_files",
        sa.Column("commit_id", COMMIT, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", SHA256, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("lfs", sa.Boolean(), nullable=False, comment="came by LFS; decides the id that clients see"),
        sa.ForeignKeyConstraint(
            ["commit_id"], ["commits.id"], name="fk_commit_files_commit_id_commits", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name="fk_commit_files_sha256_blobs"),
        sa.PrimaryKeyConstraint("commit_id", "path", name="pk_commit_files"),
    )
    op.create_index("ix_commit_files_sha256", "commit_files", ["sha256"])


def _make_arena() -> None:
    """Entries, work and who does it."""
    op.create_table(
        "entries",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("source", sa.String(8), nullable=False, comment="hub, hf, folder or house"),
        sa.Column("repo", sa.String(200), nullable=False, comment="owner/name"),
        sa.Column("owner", sa.String(96), nullable=False),
        sa.Column(
            "revision", COMMIT, nullable=False, comment="commit; for folders and house players derived from the bytes"
        ),
        sa.Column("env", sa.String(64), nullable=False),
        sa.Column("file", sa.Text(), nullable=False, comment="path in the repository; empty for house players"),
        sa.Column("sha256", SHA256, comment="of the file: the rated entity; equal files are one entity"),
        sa.Column("state", sa.String(10), nullable=False, comment="pending, accepted, refused or withdrawn"),
        sa.Column("code", sa.String(40), comment="of the refusal"),
        sa.Column("sentence", sa.Text()),
        sa.Column("remedy", sa.Text()),
        sa.Column("details", sa.Text(), nullable=False, comment="JSON: what validation measured"),
        sa.Column("pushed_ms", sa.BigInteger(), nullable=False),
        sa.Column("checked_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_entries"),
        sa.UniqueConstraint("repo", "revision", "env", name="uq_entries_repo_revision_env"),
    )
    op.create_index("ix_entries_sha256", "entries", ["sha256"])
    op.create_index("ix_entries_state", "entries", ["state"])
    op.create_table(
        "jobs",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(10), nullable=False, comment="validate or pair"),
        sa.Column("key", sa.String(200), nullable=False, comment="the same work is queued once"),
        sa.Column("payload", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("state", sa.String(8), nullable=False, comment="ready, leased, done or failed"),
        sa.Column("priority", sa.Integer(), nullable=False, comment="larger first"),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(96)),
        sa.Column("lease", sa.String(32), comment="secret of the present lease; a result must show it"),
        sa.Column("lease_until_ms", sa.BigInteger()),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("done_ms", sa.BigInteger()),
        sa.Column("fault", sa.Text(), comment="why it failed"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("key", name="uq_jobs_key"),
    )
    op.create_index("ix_jobs_state_priority", "jobs", ["state", "priority"])
    op.create_table(
        "workers",
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("isolation", sa.String(40), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False, comment="JSON: system, Python, runtime versions"),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("matches", sa.BigInteger(), nullable=False),
        sa.Column("suspended", sa.Text(), comment="why its results no longer count"),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )


def _make_log() -> None:
    """The matches, and which of them no longer count."""
    op.create_table(
        "matches",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("unit_id", sa.String(32), nullable=False),
        sa.Column("leg", sa.Integer(), nullable=False),
        sa.Column("env", sa.String(64), nullable=False),
        sa.Column("season", sa.Integer(), nullable=False),
        sa.Column("blue", SHA256, nullable=False, comment="rated entity"),
        sa.Column("purple", SHA256, nullable=False),
        sa.Column("result", sa.String(10), nullable=False),
        sa.Column("rated", sa.Boolean(), nullable=False, comment="false: exhibition, same owner, entry test, void"),
        sa.Column("worker", sa.String(96), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False, comment="the whole record, canonical JSON"),
        sa.Column("prev_hash", SHA256, nullable=False),
        sa.Column("hash", SHA256, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_matches"),
        sa.UniqueConstraint("id", name="uq_matches_id"),
    )
    op.create_index("ix_matches_blue", "matches", ["blue"])
    op.create_index("ix_matches_purple", "matches", ["purple"])
    op.create_index("ix_matches_unit_id", "matches", ["unit_id"])
    op.create_table(
        "annulments",
        sa.Column("match_id", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("match_id", name="pk_annulments"),
    )
