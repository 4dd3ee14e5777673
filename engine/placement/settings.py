"""What rules of another tool say beside places: the settings of theirs that this engine has too."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from engine.placement.options import KvType, LoadOptions, StreamExperts


@dataclass(frozen=True, slots=True)
class Settings:
    """Of each setting None, or empty, where the rules say nothing. prefill_chunk: tokens of a prompt computed at once.

    overrides: as in `LoadOptions`. model_path, max_tokens, host and port are for whoever starts a server or an answer.
    """

    n_threads: int | None = None
    n_ctx: int | None = None
    prefill_chunk: int | None = None
    k_type: KvType | None = None
    v_type: KvType | None = None
    stream_experts: StreamExperts | None = None
    overrides: tuple[tuple[str, bool | int | float | str], ...] = ()
    model_path: str = ""
    max_tokens: int | None = None
    host: str = ""
    port: int | None = None

    def options(self, options: LoadOptions) -> LoadOptions:
        """The options with these settings in place of their own."""
        names = ("n_threads", "n_ctx", "prefill_chunk", "k_type", "v_type", "stream_experts")
        mine = {name: value for name in names if (value := getattr(self, name)) is not None}
        keys = {key for key, _ in self.overrides}
        kept = tuple(one for one in options.overrides if one[0] not in keys)
        return replace(options, **mine, overrides=(*kept, *self.overrides))

    def over(self, other: Settings) -> Settings:
        """These settings, and those of `other` where these say nothing."""
        nothing = Settings()
        mine = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(other, **{name: value for name, value in mine.items() if value != getattr(nothing, name)})
