from typing import NamedTuple

class Format(NamedTuple):
    name: str
    ggml_id: int
    block: int
    type_size: int
    act: str
    path: str

ACTS: tuple[str, ...]
PATHS: tuple[str, ...]
FORMATS: tuple[Format, ...]

def grids() -> dict[str, tuple[tuple[int, ...], ...]]: ...
