"""A model that answers: its weights, tokenizer, prompts and running answers. Made by `load`, owned by the engine thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from engine.api.events import Event
from engine.api.model_info import model_info, sentence
from engine.api.values import DeviceShare, EngineSample, HoldingInfo, LoadOptions, ModelInfo
from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.errors import HelperDied
from engine.estimate.reads import TokenReads, token_reads
from engine.gguf.info import GgufFile
from engine.gguf.overrides import Override, override
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.hardware.gpus import find_gpus
from engine.hardware.topology_read import topology
from engine.placement.placement import Gpu
from engine.runtime.fallbacks import fallbacks_of
from engine.runtime.kv_cache import token_bytes
from engine.runtime.loader import LoadedModel
from engine.runtime.loader import load as load_weights
from engine.service.holdings import HoldingWatch
from engine.service.whereabouts import Whereabouts
from engine.service.work_meter import WorkMeter
from engine.session.generate import Session
from engine.session.prompt import PromptBuilder
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.chat_template import TemplateHelper, template_of
from engine.tokenizer.rules import check_tokenizer
from engine.tokenizer.template_rules import check_template
from engine.tokenizer.vocab import Vocab
from kernels_pyx.cpu_features import active_isa
from kernels_pyx.executor import AbortFlag

log = logging.getLogger("engine")


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that was read and found to be a model of ours; nothing of its weights is in memory."""

    file: GgufFile
    spec: ModelSpec
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Loaded:
    """Everything that belongs to one loaded model."""

    model: LoadedModel
    tokenizer: Tokenizer
    prompts: PromptBuilder
    session: Session
    info: ModelInfo
    templates: TemplateHelper
    warming: threading.Thread
    prefill_chunk: int
    holding: HoldingWatch
    where: Whereabouts
    meter: WorkMeter
    kv_bytes_per_token: int

    def work(self) -> EngineSample:
        """What was done since it was asked before. Any thread."""
        sample = self.meter.sample(len(self.session.active()), self.session.n_tokens_held, self.kv_bytes_per_token)
        queue = self.session.queue
        return replace(
            sample,
            n_waiting=queue.n_waiting,
            prompt_tokens=queue.prompt_tokens,
            prompt_done=queue.prompt_done,
            n_repeated=queue.n_repeated,
            astray=self.where.astray,
            strays=self.where.strays,
        )

    def renew_session(self, emit: Callable[[Event], None]) -> None:
        """Forgets the running answers and what the cache holds, after a fault in the midst of a step."""
        self.session = Session(self.meter, self.tokenizer, self.prefill_chunk, emit)

    def close(self) -> None:
        """Ends the answers in Finished(cancelled), then frees the memory. Idempotent."""
        for request_id in self.session.active():
            self.session.cancel(request_id)
        _close_templates(self.templates, self.warming)
        self.model.close()


def open_file(path: str, overrides: Sequence[Override] = ()) -> Opened:
    """Reads the header of the model at `path`: any shard of a split one, or a folder of one model. overrides: see `LoadOptions`.

    Raises:
        GgufError: damaged or missing file. UnsupportedModel: nothing that this version runs. InvalidRequest: overrides.
    """
    file, contradictions = override(read_gguf(path), overrides)
    check_tokenizer(file)
    check_template(file)
    return Opened(file, build_spec(file), tuple(map(sentence, contradictions)))


def load(
    opened: Opened,
    path: str,
    options: LoadOptions,
    progress: Callable[[str, int, int], None],
    abort: AbortFlag,
    emit: Callable[[Event], None],
) -> Loaded:
    """The model, ready to answer. progress(phase, done_bytes, total_bytes); emit: takes the events of its answers.

    Raises:
        Cancelled: `abort` was set. EngineError: it cannot be loaded; nothing stays in memory.
    """
    file, spec = opened.file, opened.spec
    templates = TemplateHelper()
    # The helper takes a while to start; it does so beside the loading, and nobody waits for it but the first prompt.
    warming = threading.Thread(target=_warm_up, args=(templates,), name="template warm-up", daemon=True)
    warming.start()
    try:
        tokenizer, model = _tokenizer_and_weights(opened, options, progress, abort)
    except BaseException:
        _close_templates(templates, warming)
        raise
    info = model_info(file, spec, path)
    warnings = opened.warnings + info.warnings + too_many_threads(options.n_threads)
    info = replace(info, n_ctx=model.n_ctx, isa=active_isa(), warnings=warnings, tuned=tuned_sentence(model))
    info = replace(info, prefill_chunk=model.chunk)
    meter = WorkMeter(model, partial(_reads, model, file, options), partial(_cards, model))
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        prompts=PromptBuilder(tokenizer, templates, template_of(file)),
        session=Session(meter, tokenizer, model.chunk, emit),
        info=lying(info, model),
        templates=templates,
        warming=warming,
        prefill_chunk=model.chunk,
        holding=HoldingWatch(model),
        where=Whereabouts(model),
        meter=meter,
        kv_bytes_per_token=sum(token_bytes(spec, options.k_type, options.v_type)),
    )


def _cards(model: LoadedModel) -> Mapping[str, str]:
    """The UUID of each GPU that the model lies on, where it is a real one."""
    used = {str(device) for device, _, _ in model.shares if isinstance(device, Gpu)}
    return {f"gpu{one.index}": one.uuid for one in find_gpus().found if f"gpu{one.index}" in used} if used else {}


def _reads(model: LoadedModel, file: GgufFile, options: LoadOptions) -> Mapping[str, TokenReads]:
    """What a token reads from each device; nothing is known of the reference model."""
    return {} if model.placement is None else token_reads(model.spec, file.tensors, options, model.placement)


def _tokenizer_and_weights(
    opened: Opened, options: LoadOptions, progress: Callable[[str, int, int], None], abort: AbortFlag
) -> tuple[Tokenizer, LoadedModel]:
    """Both, made side by side: the weights wait for the disk and for the first token, the tokenizer for nothing."""
    vocab = Vocab.from_gguf(opened.file)
    with ThreadPoolExecutor(1, "tokenizer") as beside:
        tokenizer = beside.submit(Tokenizer, vocab)
        model = load_weights(opened.file, opened.spec, build_graph(opened.spec), options, progress, abort)
        try:
            return tokenizer.result(), model
        except BaseException:
            model.close()
            raise


def lying(info: ModelInfo, model: LoadedModel) -> ModelInfo:
    """The info with where the model lies by now."""
    devices = tuple(DeviceShare(str(device), name, nbytes) for device, name, nbytes in model.shares)
    base = tuple(one for one in info.warnings if one not in info.placement_notes)
    return replace(
        info,
        warnings=base + model.notes,
        placement_notes=model.notes,
        devices=devices,
        placement=model.placement,
        holdings=holdings_of(model),
        fallbacks=fallbacks_of(model),
    )


def holdings_of(model: LoadedModel) -> tuple[HoldingInfo, ...]:
    """What the model holds by now."""
    return tuple(HoldingInfo(str(one.device), one.owner, one.nbytes, one.mapped) for one in model.residency.holdings)


def tuned_sentence(model: LoadedModel) -> str:
    """What an earlier sweep over numbers of workers has decided about this load; "": nothing."""
    source = model.source
    if source.tuned is None:
        return ""
    at_once = source.options.prefill_chunk
    chunk = "" if at_once == LoadOptions().prefill_chunk else f" and {at_once} tokens at once"
    return (
        f"Works with {counted(source.tuned.n_threads, 'thread')}{chunk}, the fastest of those tried here "
        f"({source.tuned.decode_tok_s:.1f} tokens/s)."
    )


def counted(n: int, what: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def too_many_threads(n_threads: int) -> tuple[str, ...]:
    """A warning when more threads are asked for than there are cores to run them."""
    n_cores = len(topology().usable_cores)
    if n_threads <= n_cores:
        return ()
    return (f"{n_threads} threads share {n_cores} cores, which is slower than one thread a core; choose {n_cores} or 0.",)


def _warm_up(templates: TemplateHelper) -> None:
    try:
        templates.warm_up()
    except HelperDied as error:
        # Closed meanwhile, or broken: then the first prompt is made without it and says so.
        log.info("the template helper did not start: %s", error)


def _close_templates(templates: TemplateHelper, warming: threading.Thread) -> None:
    templates.close()
    warming.join()
