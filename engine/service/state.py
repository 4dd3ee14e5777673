"""What the engine thread holds between commands: the loaded model, the sensor watch, and the ways in and out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.api.commands import Cancel
from engine.api.events import Event, Finished
from engine.api.values import EngineSample, RequestId
from engine.placement.placement import Gpu
from engine.service.loaded import Loaded
from engine.service.mailbox import Mailbox
from engine.service.migration import LOOK_S, Migration
from engine.service.sensor_feed import SensorFeed
from engine.service.tuning import Tuning
from kernels_pyx.executor import AbortFlag

HOLDINGS_LOOK_S = 10.0
"""While somebody watches the machine, an idle engine looks so often at what its model holds."""
OWNER_LOOKS_S = 5.0
"""Who has taken memory from the system looks so often whether it should give some back."""


@dataclass(slots=True)
class ExpertWatch:
    """A running watch of counts of experts: who asked, how often, and when they are due next (monotonic seconds). told: tokens
    that were counted when they were last sent, None before the first time; pools: whether pools were told of then."""

    request_id: RequestId
    period_s: float
    due: float
    told: int | None = None
    pools: bool = False


@dataclass(slots=True)
class State:
    """emit sends an event; abort stops the step or the load under way."""

    emit: Callable[[Event], None]
    mailbox: Mailbox
    abort: AbortFlag
    loaded: Loaded | None = None
    feed: SensorFeed | None = None
    expert_watch: ExpertWatch | None = None
    migration: Migration | None = None
    tuning: Tuning | None = None
    comparison: RequestId | None = None
    """Who asked for the comparison of pools that goes on."""

    @property
    def answering(self) -> bool:
        """Whether there are answers to make."""
        return self.loaded is not None and not self.loaded.session.idle

    @property
    def may_tune(self) -> bool:
        """Whether nobody else needs the model: no answer, no placement under way, no weights on their way into memory."""
        return self.loaded is not None and not self.answering and self.migration is None and not self.loaded.model.settling

    def follow_move(self) -> None:
        """Between two steps: carries on with a placement that is being applied."""
        if self.migration is None or not self.migration.poll():
            return
        self.migration = None
        self.tell_feed()
        pools = None if self.loaded is None else self.loaded.model.pools
        if pools is None or not pools.comparing:
            self.comparison = None  # it went with the pools it was about
        if self.expert_watch is not None:
            self.expert_watch.told, self.expert_watch.due = None, time.monotonic()

    def breathe(self) -> None:
        """Called now and then in a long command: queued requests that were cancelled end."""
        for command in self.mailbox.take_cancelled():
            self.emit(Finished(command.request_id, "done" if isinstance(command, Cancel) else "cancelled"))
        self.look()

    def look(self) -> None:
        """Looks at what the model holds, when that is due, and while somebody watches at where it is."""
        if self.loaded is not None:
            self.loaded.holding.look()
            if self.feed is not None:
                self.loaded.where.look()

    def work(self) -> EngineSample | None:
        """What the engine did since it was asked before; None without a model. Any thread."""
        loaded = self.loaded
        return None if loaded is None else loaded.work()

    def tell_feed(self) -> None:
        """Tells whoever watches sensors which model there is."""
        loaded = self.loaded
        if self.feed is not None:
            on_gpus = loaded is not None and any(isinstance(device, Gpu) for device, _, _ in loaded.model.shares)
            self.feed.model(None if loaded is None else Path(loaded.info.path), on_gpus=on_gpus)
        if loaded is not None:
            loaded.meter.watch(watched=self.feed is not None)

    def end_feed(self) -> None:
        """No sensors are read any more."""
        feed, self.feed = self.feed, None
        if feed is not None:
            feed.close()
            self.tell_feed()

    def patience_s(self) -> float | None:
        """How long the thread may wait for a command: until counts are due, not at all while there is work, None for ever."""
        if self.answering or (self.loaded is not None and self.loaded.model.settling):
            return 0
        if self.migration is not None:
            return LOOK_S
        if self.tuning is not None:
            return 0
        waits = [HOLDINGS_LOOK_S] if self.loaded is not None and self.feed is not None else []
        if self.loaded is not None and self.expert_watch is not None and self.loaded.model.experts is not None:
            untold = self.loaded.model.experts.n_tokens != self.expert_watch.told
            waits += [max(0.0, self.expert_watch.due - time.monotonic())] * untold
        if self.loaded is not None and self.loaded.model.owns:
            waits.append(OWNER_LOOKS_S)
        warm_in_s = None if self.loaded is None else self.loaded.model.warm_in_s
        if warm_in_s is not None:
            waits.append(warm_in_s)
        return min(waits, default=None)

    def drop_model(self) -> None:
        """Ends every answer and frees the model."""
        if self.tuning is not None:
            tuning, self.tuning = self.tuning, None
            tuning.cancel()
        if self.migration is not None:
            migration, self.migration = self.migration, None
            migration.abandon()
        if self.loaded is not None:
            loaded, self.loaded = self.loaded, None
            self.tell_feed()
            loaded.close()
        if self.expert_watch is not None:
            self.expert_watch.told = None
        self.comparison = None
