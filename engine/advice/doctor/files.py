"""Rows about the model's file: whether it is sound, whole, the one that was meant, and whether its template can be used."""

from __future__ import annotations

import hashlib
import re

from engine.advice.doctor.check import Fix, Outcome, count, failed, gb, passed, row, unknown, without_object
from engine.advice.doctor.context import Context
from engine.errors import EngineError, HelperDied, InvalidRequest
from engine.gguf.advice import warnings_of
from engine.tokenizer.chat_template import RenderRequest, TemplateHelper
from engine.tokenizer.template_rules import template_of, template_problem

GROUP = "The model's file"
NONE = "No model is chosen."
AGAIN = Fix("", "download the file again, or let the download go on where it stopped", "")
_PARTS = re.compile(r"shard|part|split", re.IGNORECASE)
_READ_BYTES = 8 << 20


@row("D-FIL-1", GROUP, "Header")
def header(context: Context) -> Outcome:
    """The strict reading that loading does: the first field that is broken, with its place."""
    found = context.model_file
    if found is None:
        return without_object(NONE)
    if isinstance(found, EngineError):
        return failed("cannot be loaded", f"{str(found)[:1].upper()}{str(found)[1:]}.", AGAIN)
    odd = warnings_of(found)
    why = "" if not odd else f"{odd[0][:1].upper()}{odd[0][1:]}."
    return passed(f"{found.architecture}, {count(len(found.tensors), 'tensor')}, {gb(found.file_bytes)}", why)


@row("D-FIL-2", GROUP, "Parts")
def parts(context: Context) -> Outcome:
    """A model in several files needs all of them, beside each other."""
    found = context.model_file
    if found is None:
        return without_object(NONE)
    if isinstance(found, EngineError):
        if _PARTS.search(str(found)):
            return failed("a part is missing or of another model", f"{str(found)[:1].upper()}{str(found)[1:]}.", AGAIN)
        return unknown("The header cannot be read.")
    return passed(count(len(found.shards), "file"))


@row("D-FIL-3", GROUP, "Content", quick=False)
def content(context: Context) -> Outcome:
    """The file's SHA-256 against what its source says; reads all of it."""
    if context.model is None:
        return without_object(NONE)
    wanted = context.model.sha256.lower()
    if not wanted:
        return without_object("Nobody told the file's SHA-256; downloads do.")
    digest = hashlib.sha256()
    try:
        with context.model.path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    except OSError as error:
        return unknown(f"The file cannot be read ({error.strerror}).")
    if digest.hexdigest() == wanted:
        return passed("as its source says")
    return failed(
        "another content than its source says", "The file is damaged, or it is another version.", AGAIN, evidence="SHA-256"
    )


@row("D-FIL-4", GROUP, "Chat template")
def template(context: Context) -> Outcome:
    """The file's template is a program: it is looked at and, where time allows, run once in a shut-in process."""
    found = context.model_file
    if found is None:
        return without_object(NONE)
    if isinstance(found, EngineError):
        return unknown("The header cannot be read.")
    text = template_of(found)
    if text is None:
        return passed("none in the file", "Plain ChatML is used, which this model may not know.")
    standard = Fix("", "go on with plain ChatML, or choose another template in the chat's settings", "choose the file's again")
    problem = template_problem(text)
    if problem is not None:
        return failed("cannot be used", f"The file's chat template is hostile or broken ({problem}).", standard)
    if not context.thorough:
        return passed(f"{count(len(text), 'character')}, sound as far as reading tells")
    helper = TemplateHelper()
    try:
        helper.render(text, RenderRequest(messages=[{"role": "user", "content": "Hello"}], add_generation_prompt=True))
    except (HelperDied, InvalidRequest) as error:
        return unknown(f"It could not be tried: {error}.")
    except EngineError as error:
        return failed("cannot be used", f"{str(error)[:1].upper()}{str(error)[1:]}.", standard)
    finally:
        helper.close()
    return passed(f"{count(len(text), 'character')}, one message was written with it")
