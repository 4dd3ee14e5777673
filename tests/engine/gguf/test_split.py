"""Models in several files: any shard opens all, and each thing that can be wrong has its own sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import GgufError
from engine.gguf import types
from engine.gguf.reader import read_gguf
from tests.helpers.gguf_builder import Typed, build_gguf

N = 3


def shard(number: int, count: int = N, n_tensors: int = 6, **extra: object) -> bytes:
    metadata: dict[str, object] = {"general.architecture": "llama", "general.name": "parted"} if number == 0 else {}
    metadata |= {
        "split.no": Typed(types.UINT16, number),
        "split.count": Typed(types.UINT16, count),
        "split.tensors.count": Typed(types.INT32, n_tensors),
    }
    tensors = [(f"t{number}.{i}", (32,), 0, bytes([number]) * 128) for i in range(2)]
    return build_gguf(metadata | extra, tensors)


def name(number: int, count: int = N) -> str:
    return f"m-{number + 1:05d}-of-{count:05d}.gguf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(N):
        (tmp_path / name(number)).write_bytes(shard(number))
    return tmp_path


@pytest.mark.parametrize("opened", range(N))
def test_any_shard_opens_all(folder: Path, opened: int) -> None:
    file = read_gguf(folder / name(opened))
    assert [s.path.name for s in file.shards] == [name(i) for i in range(N)]
    assert file.metadata["general.name"] == "parted"
    assert [info.shard for info in file.tensors.values()] == [0, 0, 1, 1, 2, 2]
    assert file.file_bytes == sum(p.stat().st_size for p in folder.iterdir())
    last = file.tensors["t2.1"]
    assert (folder / name(2)).read_bytes()[last.offset : last.offset + last.nbytes] == b"\2" * 128


def test_missing_shard_is_named(folder: Path) -> None:
    (folder / name(1)).unlink()
    with pytest.raises(GgufError, match=rf"1 of 3 parts are missing beside it: {name(1)}; download"):
        read_gguf(folder / name(0))


def test_renamed_shard_is_told_its_name(folder: Path) -> None:
    (folder / name(0)).rename(folder / "model.gguf")
    with pytest.raises(GgufError, match=r"its name does not end in -00001-of-00003.gguf"):
        read_gguf(folder / "model.gguf")


def test_copy_of_another_shard_is_found(folder: Path) -> None:
    shutil.copy(folder / name(0), folder / name(1))
    with pytest.raises(GgufError, match="part 2 is expected here but the file repeats part 1"):
        read_gguf(folder / name(2))


def test_shard_of_another_architecture_is_found(folder: Path) -> None:
    (folder / name(1)).write_bytes(shard(1, **{"general.architecture": "qwen3"}))
    with pytest.raises(GgufError, match="the part is of architecture 'qwen3'"):
        read_gguf(folder / name(0))


def test_shard_of_another_count_is_found(folder: Path) -> None:
    (folder / name(1)).write_bytes(shard(1, count=5))
    with pytest.raises(GgufError, match="the part says it is one of 5"):
        read_gguf(folder / name(0))


def test_repeated_tensor_is_found(folder: Path) -> None:
    metadata = {"split.no": Typed(types.UINT16, 1), "split.count": Typed(types.UINT16, N)}
    (folder / name(1)).write_bytes(build_gguf(metadata, [("t0.1", (32,), 0, bytes(128))]))
    with pytest.raises(GgufError, match=r"it is already in m-00001-of-00003.gguf"):
        read_gguf(folder / name(0))


def test_wrong_number_of_tensors_is_found(folder: Path) -> None:
    for number in range(N):
        (folder / name(number)).write_bytes(shard(number, n_tensors=7))
    with pytest.raises(GgufError, match="7 tensors are announced, the 3 shards hold 6"):
        read_gguf(folder / name(0))


def test_truncated_shard_is_named(folder: Path) -> None:
    path = folder / name(2)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(GgufError, match=rf"{name(2)}: tensor 't2.1' at byte \d+: its data ends"):
        read_gguf(folder / name(0))


def test_split_of_one_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(shard(0, count=1, n_tensors=2))
    assert len(read_gguf(path).shards) == 1


@pytest.mark.parametrize("links", [False, True], ids=["files", "links into a cache"])
def test_folder_of_one_model_opens_it(folder: Path, tmp_path: Path, links: bool) -> None:
    (folder / "mmproj-m.gguf").write_bytes(b"an encoder of pictures")
    (folder / "README.md").write_text("read me")
    if links:
        # A download cache names files by their content and links to them.
        (folder / "blobs").mkdir()
        for number in range(N):
            blob = (folder / name(number)).rename(folder / "blobs" / f"{number}f3a")
            (folder / name(number)).symlink_to(blob)
    file = read_gguf(folder)
    assert [s.path.name for s in file.shards] == [name(i) for i in range(N)] and len(file.tensors) == 2 * N
    assert file.name == "parted"


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"no file in this folder ends in \.gguf"):
        read_gguf(tmp_path)


def test_folder_of_several_models_names_them(folder: Path) -> None:
    (folder / "other.gguf").write_bytes(b"")
    with pytest.raises(GgufError, match=rf"the folder holds 2 models \({name(0)}, other.gguf\).*choose one"):
        read_gguf(folder)


def test_folder_whose_first_shard_is_missing_says_so(folder: Path) -> None:
    (folder / name(0)).unlink()
    with pytest.raises(GgufError, match=rf"1 of 3 parts are missing beside it: {name(0)}; download"):
        read_gguf(folder)


def test_shard_that_counts_other_tensors_is_found(folder: Path) -> None:
    (folder / name(2)).write_bytes(shard(2, n_tensors=9))
    with pytest.raises(GgufError, match=rf"{name(2)}: split.tensors.count at byte \d+: the part counts 9 tensors in all parts"):
        read_gguf(folder / name(0))


def test_more_shards_than_can_be_kept_open_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-09999.gguf"
    path.write_bytes(shard(0, count=9999))
    with pytest.raises(GgufError, match="part 1 of 9999 makes no sense"):
        read_gguf(path)


def test_name_is_that_of_the_file_without_its_part(tmp_path: Path) -> None:
    for number in range(2):
        extra = {"general.name": " "} if number == 0 else {}
        (tmp_path / name(number, 2)).write_bytes(shard(number, count=2, n_tensors=4, **extra))
    assert read_gguf(tmp_path).name == "m"
