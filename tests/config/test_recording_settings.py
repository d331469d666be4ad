"""`[recordings]`: where recordings are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config.errors import StartupError
from config.secrets import read_key
from config.settings import Settings

KEYS = 'access_key_file = "a"\nsecret_key_file = "b"\n'


def load(folder: Path, table: str) -> Settings:
    file = folder / "trunkline.toml"
    file.write_text(f'data_dir = "{folder}"\n[recordings]\n{table}')
    return Settings.load(file, {})


def problem(folder: Path, table: str) -> str:
    with pytest.raises(StartupError) as failure:
        load(folder, table)
    return failure.value.message


def test_recordings_stay_in_the_data_directory_by_default() -> None:
    recordings = Settings().recordings
    assert (recordings.url, recordings.bucket, recordings.folder) == (None, None, None)


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://calls", "calls", ""),
        ("s3://calls/", "calls", ""),
        ("s3://calls/a/b-1_2.c/", "calls", "a/b-1_2.c"),
    ],
)
def test_a_bucket_has_a_prefix_or_none(tmp_path: Path, url: str, bucket: str, prefix: str) -> None:
    recordings = load(tmp_path, f'url = "{url}"\nendpoint = "http://127.0.0.1:9000/"\n{KEYS}').recordings
    assert (recordings.bucket, recordings.prefix, recordings.folder) == (bucket, prefix, None)
    assert recordings.endpoint == "http://127.0.0.1:9000"


@pytest.mark.parametrize("url", ["/srv/calls", "/srv/calls/", "file:///srv/calls", "file://localhost/srv/calls"])
def test_a_folder_is_a_path_or_a_file_url(tmp_path: Path, url: str) -> None:
    recordings = load(tmp_path, f'url = "{url}"').recordings
    assert (recordings.bucket, recordings.folder, recordings.url) == (None, Path("/srv/calls"), "/srv/calls")


@pytest.mark.parametrize(
    "url",
    ["", "calls", "s3://", "s3://Calls", "s3://a", "s3://calls/../x", "s3://calls/a//b", "s3://k:s@calls", "s3://calls?x",
     "http://calls", "file://host/calls", "/srv/../etc"],
)  # fmt: skip
def test_another_url_is_rejected_with_what_it_takes(tmp_path: Path, url: str) -> None:
    text = problem(tmp_path, f'url = "{url}"\n{KEYS}')
    assert text.startswith("bad setting recordings.url (")
    assert text.endswith("it takes s3://bucket[/prefix], or the absolute path of a folder")


def test_settings_that_do_not_fit_are_named(tmp_path: Path) -> None:
    text = problem(tmp_path, 'url = "s3://calls"\naccess_key_file = "a"')
    assert "url s3://calls needs secret_key_file" in text
    assert "endpoint is for a url that begins with s3://" in problem(tmp_path, 'endpoint = "http://a"')
    assert "access_key_file is for a url" in problem(tmp_path, f'url = "/srv/calls"\n{KEYS}')
    text = problem(tmp_path, f'url = "s3://calls"\nendpoint = "http://user:word@a"\n{KEYS}')
    assert "bad setting recordings.endpoint" in text and "word" not in text
    assert "recordings.url is the folder where calls are recorded" in problem(
        tmp_path, f'url = "{tmp_path}/recordings"'
    )


def test_a_key_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text("AKEY \nmore\n")
    with capture_logs() as log:
        assert read_key(path, "recordings.access_key_file") == "AKEY"
        assert not log
        path.chmod(0o640)
        assert read_key(path, "recordings.access_key_file") == "AKEY"
    assert [each["event"] for each in log] == ["secrets.key_file_readable_by_others"]
    for content in (b"", b"\n", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(StartupError, match=r"recordings\.access_key_file .*key"):
            read_key(path, "recordings.access_key_file")
    with pytest.raises(StartupError, match="cannot be read: No such file"):
        read_key(tmp_path / "absent", "recordings.access_key_file")
