"""A Placement of ours as a launch script: it looks at the machine, tells what it does, and starts llama.cpp, ik_llama.cpp or
KTransformers, as its first argument says. It changes nothing about the machine."""

from __future__ import annotations

import shlex

from engine.hardware.cpu_list import format_cpus
from engine.placement.export import to_flags
from engine.placement.flags import LlamaTool
from engine.placement.interchange.write_kt import write_rules
from engine.placement.interchange.write_settings import memory_words, not_in_flags, settings_words
from engine.placement.interchange.written import Text, Written

_HEAD = """#!/usr/bin/env bash
# Starts a model with the placement that Layerdeck shows. Nothing about the machine is changed.
# Usage: SCRIPT [llama | ik | ktransformers]
set -euo pipefail

ENGINE="${{1:-llama}}"
MODEL_PATH={model}
THREADS={threads}
CTX={context}

echo "[1/3] Nodes of memory"
if command -v numactl > /dev/null; then numactl --hardware | head -n 8; fi
echo "[2/3] Memory: files that it holds already are used again, so nothing is flushed"
grep -E '^(MemAvailable|Cached):' /proc/meminfo
echo "[3/3] Starting $ENGINE"
"""
_BODY = """case "$ENGINE" in
llama)
    exec {pinned}llama-server \\
        -m "$MODEL_PATH" \\
        {llama} \\
        -c "$CTX" -t "$THREADS"{more}
    ;;
ik)
    exec {pinned}./ik_llama.cpp/build/bin/llama-server \\
        -m "$MODEL_PATH" \\
        {ik} \\
        -c "$CTX" -t "$THREADS"{more}
    ;;
ktransformers)
    RULES="$(mktemp --suffix=.yaml)"
    cat > "$RULES" <<'END_OF_RULES'
{rules}END_OF_RULES
    exec {pinned}python3 -m ktransformers.server.main \\
        --gguf_path "$(dirname "$MODEL_PATH")" --optimize_config_path "$RULES" \\
        --cpu_infer "$THREADS" --cache_lens "$CTX"
    ;;
*)
    echo "There is no engine $ENGINE; give llama, ik or ktransformers" >&2
    exit 2
    ;;
esac
"""


def write_script(written: Written) -> Text:
    """The script. notes: what llama.cpp, which it starts by itself, cannot say."""
    options = written.options
    n_threads = (options.n_threads if options is not None else 0) or written.n_workers
    notes = list(to_flags(written.units, written.k_type, written.v_type, written.n_extra).notes)
    more = settings_words(written, numbers=False)
    cores = options.cores if options is not None else ()
    head = _HEAD.format(
        model=shlex.quote(written.model_path or "model.gguf"),
        threads=n_threads or '"$(nproc)"',
        context=(options.n_ctx if options is not None else 0) or 8192,
    )
    bound = [*memory_words(written), *(["taskset", "-c", format_cpus(cores)] if cores else [])]
    body = _BODY.format(
        pinned=f"{shlex.join(bound)} " if bound else "",
        llama=_flags(written, "llama.cpp"),
        ik=_flags(written, "ik"),
        more=f" {shlex.join(more)}" if more else "",
        rules=write_rules(written).text,
    )
    return Text(head + body, (*notes, *not_in_flags(written)))


def _flags(written: Written, tool: LlamaTool) -> str:
    return shlex.join(to_flags(written.units, written.k_type, written.v_type, written.n_extra, tool).words)
