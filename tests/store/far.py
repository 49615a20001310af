"""A storage of objects for tests: Amazon's protocol on loopback, by moto.

from far import s3_server  # noqa: F401

def test_it(s3_server: str) -> None:
    Depot(f"{s3_server}/arena")
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """s3://bucket of a server that runs while the tests do; its address and keys are in the environment."""
    pytest.importorskip("s3fs", reason="s3:// is opened by s3fs, of palus[cluster]")
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        files = s3fs.S3FileSystem(skip_instance_cache=True)
        if not files.exists("palus-test"):  # servers of one process share what they hold
            files.mkdir("palus-test")
        yield "s3://palus-test"
    server.stop()
