"""Launches that a device has too little shared memory for are made smaller: fewer tiles on their way, then smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeVar

from triton.runtime.errors import OutOfResources

from engine.triton_kernels.attention_decode import DecodeConfig
from engine.triton_kernels.attention_prefill import TileConfig
from engine.triton_kernels.latent_attend import LatentConfig

Config = TypeVar("Config", DecodeConfig, TileConfig, LatentConfig)
LEAST_KEYS = 16
"""A product of tensor cores has no fewer."""


class Fitting:
    """Remembers what fitted."""

    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}

    def launch(self, run: Callable[[Config], None], wanted: Config, *what: Hashable) -> None:
        """run(wanted), or with the largest smaller one that the device takes. what: on which its size depends.

        Raises:
            OutOfResources: not even the smallest fits.
        """
        known = self._known.get((wanted, *what))
        config = known if isinstance(known, type(wanted)) else wanted
        while True:
            try:
                run(config)
            except OutOfResources:
                if config.stages == 1 and config.keys <= LEAST_KEYS:
                    raise
                config = (
                    replace(config, stages=config.stages - 1) if config.stages > 1 else replace(config, keys=config.keys // 2)
                )
            else:
                self._known[(wanted, *what)] = config
                return
