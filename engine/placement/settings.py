"""What rules of another tool say beside places: the settings of theirs that this engine has too."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from engine.hardware.cpu_list import format_cpus
from engine.placement.options import KvType, LoadOptions, StreamExperts


@dataclass(frozen=True, slots=True)
class Settings:
    """Of each setting None, or empty, where the rules say nothing. prefill_chunk: tokens of a prompt computed at once.

    overrides, cores: as in `LoadOptions`. node: of memory, the only one that is used, see `source.on_machine`. model_path,
    max_tokens, host and port are for whoever starts a server or an answer.
    """

    n_threads: int | None = None
    n_ctx: int | None = None
    prefill_chunk: int | None = None
    k_type: KvType | None = None
    v_type: KvType | None = None
    stream_experts: StreamExperts | None = None
    overrides: tuple[tuple[str, bool | int | float | str], ...] = ()
    cores: tuple[int, ...] = ()
    node: int | None = None
    model_path: str = ""
    max_tokens: int | None = None
    host: str = ""
    port: int | None = None

    def options(self, options: LoadOptions) -> LoadOptions:
        """The options with these settings in place of their own."""
        names = ("n_threads", "n_ctx", "prefill_chunk", "k_type", "v_type", "stream_experts")
        mine: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.cores:
            mine["cores"] = self.cores[: self.n_threads or len(self.cores)]
            mine["n_threads"] = len(mine["cores"])
        keys = {key for key, _ in self.overrides}
        kept = tuple(one for one in options.overrides if one[0] not in keys)
        return replace(options, **mine, overrides=(*kept, *self.overrides))

    def words(self) -> tuple[str, ...]:
        """These settings as options of this program's own commands."""
        found: list[str] = []
        if self.cores or self.n_threads:
            found += ["-t", format_cpus(self.cores) if self.cores else str(self.n_threads)]
        for option, value in (("-c", self.n_ctx), ("-b", self.prefill_chunk), ("-ctk", self.k_type), ("-ctv", self.v_type)):
            if value is not None:
                found += [option, str(value)]
        if self.stream_experts is not None and self.stream_experts != "auto":
            found += ["--stream-experts", self.stream_experts]
        for key, given in self.overrides:
            found += ["--override", f"{key}={given}"]
        return tuple(found)

    def over(self, other: Settings) -> Settings:
        """These settings, and those of `other` where these say nothing."""
        nothing = Settings()
        mine = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(other, **{name: value for name, value in mine.items() if value != getattr(nothing, name)})
