from typing import NamedTuple

class Format(NamedTuple):
    name: str
    ggml_id: int
    block: int
    type_size: int
    act: str

ACTS: tuple[str, ...]
FORMATS: tuple[Format, ...]
