"""What there is to say about a model file from its header alone."""

from __future__ import annotations

from collections import Counter

from engine.api.values import ModelInfo
from engine.arch.spec import ModelSpec
from engine.estimate.derived import derived_infos
from engine.gguf.advice import warnings_of
from engine.gguf.groups import exact_formats
from engine.gguf.info import GgufFile
from engine.tokenizer.chat_template import template_of


def model_info(file: GgufFile, spec: ModelSpec, path: str) -> ModelInfo:
    """What there is to say about a model file before it is loaded."""
    bytes_by_type: Counter[str] = Counter()
    for tensor in file.tensors.values():
        bytes_by_type[tensor.type_name] += tensor.nbytes
    has_template = template_of(file) is not None
    return ModelInfo(
        path=path,
        name=file.name,
        architecture=spec.architecture,
        quant=bytes_by_type.most_common(1)[0][0],
        n_params=sum(tensor.n_elements for tensor in file.tensors.values()),
        n_layers=spec.n_layers,
        n_vocab=spec.n_vocab,
        file_bytes=file.file_bytes,
        context_length=spec.context_length,
        n_ctx=0,
        has_template=has_template,
        warnings=tuple(map(sentence, warnings_of(file))),
        exact_formats=exact_formats(file),
        derived_bytes=sum(one.nbytes for one in derived_infos(spec, {name: one.type_id for name, one in file.tensors.items()})),
    )


def sentence(clause: str) -> str:
    """A clause as a sentence of its own."""
    return f"{clause[0].upper()}{clause[1:].removesuffix('.')}."
