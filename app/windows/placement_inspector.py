"""PlacementInspector: what the inspector says about the selection, and the counts of experts that it shows as they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QPoint, Signal
from PySide6.QtWidgets import QMenu

from app.bridge.op import Op
from app.bridge.throttle import Throttle
from app.i18n import filled, tr
from app.ops.placement_cards import Card, CardId, HotSet, family_name
from app.ops.placement_measure import prompt_of
from app.ops.placement_planning import DeskState, device_name, nodes_text
from app.ops.placement_truth import ranges_text
from app.placement.board import PlacementBoard
from app.placement.facts import Fact
from app.placement.inspector import Selection, Use
from app.placement.move_buttons import Target
from app.placement.placement_page import PlacementPage
from app.widgets.format import bytes_text, count_text
from app.windows.placement_parts import PlacementParts
from engine.api.commands import Generate, WatchExperts
from engine.api.events import Event, ExpertCounts, ModelReady, ModelUnloaded
from engine.api.pure import Device, UnitId
from engine.api.values import SamplingParams

FRAME_S = 0.1
STRIPS_MS = 1000
"""The strips of all cards follow once a second; the map of the inspector with each frame."""
N_COUNTED = 128
"""Tokens of an answer that is written only to count experts."""
_SHARES = (0.125, 0.25, 0.5)
MOST_DEVICES = 6


class PlacementInspector(QObject):
    """notice(sentence)."""

    notice = Signal(str)

    def __init__(self, parts: PlacementParts, board: PlacementBoard, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._board, self._page = parts, board, page
        self._desk = parts.desk
        self._span = ""
        self.n_counted = 0
        """Tokens of the counts that are shown."""
        self._keeps = False
        self._layer: int | None = None
        self._watching = False
        self._told: ExpertCounts | None = None
        self._set_strips = Throttle(STRIPS_MS, self._desk.set_heat, self)
        inspector = page.inspector
        board.selection_changed.connect(self._on_selection_changed)
        self._desk.predicted.connect(self.refresh)
        self._desk.state_changed.connect(self.refresh)  # while it is being applied nothing can be moved
        self._desk.outline_changed.connect(self._on_outline_changed)
        self._desk.heat_changed.connect(self.refresh)
        parts.bridge.happened.connect(self._on_event)
        inspector.move_requested.connect(self._on_move_requested)
        inspector.split_requested.connect(self._on_split_requested)
        inspector.pin_requested.connect(self._on_pin_requested)
        inspector.layer_requested.connect(self._on_layer_requested)
        inspector.count_requested.connect(self._on_count_requested)

    # --- counting ----------------------------------------------------------------------------------------------------

    def watch(self, on: bool) -> None:
        """Counts are asked for only while somebody can see them."""
        if on != self._watching:
            self._watching = on
            bridge = self._parts.bridge
            bridge.submit(WatchExperts(bridge.new_id(), FRAME_S if on else 0.0))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ModelReady | ModelUnloaded):
            self._told, self._keeps = None, False
        elif isinstance(event, ExpertCounts):
            self._told = event
            if not self._keeps:
                self._take_told()

    def _take_told(self) -> None:
        """Counts of the loaded model, once it is the one that is planned: they are told again only when they change."""
        told, model = self._told, self._parts.bridge.state.model
        if told is not None and told.n_tokens and model is not None and model.path == self._desk.path:
            self.set_counts(told.n_tokens, {layer: told.counts[i].tolist() for i, layer in enumerate(told.layers)})

    def set_counts(self, n_tokens: int, counts: Mapping[int, Sequence[int]]) -> None:
        """How often each expert of some layers was chosen for so many tokens."""
        self._show_counts(n_tokens, counts, filled(tr("Placement", "%1 tokens"), count_text(n_tokens)) if n_tokens else "")

    def show_kept(self, n_tokens: int, counts: Mapping[int, Sequence[int]], span: str, *, stays: bool) -> None:
        """Counts of other times. stays: until others are asked for, whatever the model counts meanwhile."""
        self._keeps = stays
        self._show_counts(n_tokens, counts, span)

    def show_live(self) -> None:
        """What the loaded model has counted, from now on as it counts."""
        self._keeps = False
        none: dict[int, Sequence[int]] = {layer: () for layer in self._desk.heat.counts}
        self._show_counts(0, none, "")
        self._take_told()

    def _show_counts(self, n_tokens: int, counts: Mapping[int, Sequence[int]], span: str) -> None:
        self.n_counted, self._span = n_tokens, span
        self._desk.heat.set_counts(counts)
        self._set_strips(counts)
        self._show_use()

    def _on_count_requested(self) -> None:
        bridge = self._parts.bridge
        model = bridge.state.model
        if model is None or model.path != self._desk.path:
            self.notice.emit(tr("Placement", "Load this model first; its experts are counted as it answers."))
            return
        sampling = SamplingParams(temperature=0.0, top_k=1, max_tokens=N_COUNTED)
        command = Generate(bridge.new_id(), prompt=prompt_of(0), sampling=sampling, ignore_eog=True)
        Op(bridge, command).failure(lambda event: self.notice.emit(event.message)).run()
        self.notice.emit(tr("Placement", "A text is being written to see which experts it uses."))

    # --- showing -----------------------------------------------------------------------------------------------------

    def _on_outline_changed(self) -> None:
        self._layer, self.n_counted, self._span, self._keeps = None, 0, "", False
        self.refresh()
        if self._desk.outline is not None:
            self._take_told()

    def _on_selection_changed(self) -> None:
        self._layer = None
        self.refresh()

    def refresh(self, _state: DeskState | None = None) -> None:
        """Shows what is selected, else the model."""
        if self._desk.outline is None or self._desk.placement is None:
            self._page.inspector.show_selection(Selection(tr("Placement", "Nothing selected")))
            return
        cards = self._board.selected_cards()
        shown = self._selection(cards) if cards else self._whole()
        self._page.inspector.show_selection(replace(shown, use=self._use(cards)))

    def _show_use(self) -> None:
        self._page.inspector.use.show_use(self._use(self._board.selected_cards()))

    def _selection(self, cards: Sequence[Card]) -> Selection:
        ids = tuple(card.id for card in cards)
        title = cards[0].label if len(cards) == 1 else tr("Placement", "%n cards selected", len(cards))
        pinned = all(card.pinned for card in cards)
        return Selection(
            title,
            subtitle_of(cards),
            self._facts(cards),
            self._targets(cards, ids),
            split=tr("Placement", "Split by expert use…") if _layers(cards) else "",
            pin=tr("Placement", "Unpin") if pinned else tr("Placement", "Pin"),
        )

    def _facts(self, cards: Sequence[Card]) -> tuple[Fact, ...]:
        formats = {card.formats for card in cards if card.formats}
        facts = [Fact(tr("Placement", "Size"), bytes_text(sum(_moved_bytes(card) for card in cards)))]
        if formats:
            text = formats.pop() if len(formats) == 1 else tr("Placement", "several")
            facts.append(Fact(tr("Placement", "Type"), text))
        nodes = {card.nodes for card in cards}
        if nodes != {()}:
            text = nodes_text(next(iter(nodes))) if len(nodes) == 1 else tr("Placement", "some of them")
            facts.append(Fact(tr("Placement", "Split over"), text))
        read = round(sum(self._read_of(card) for card in cards))
        if read:
            facts.append(Fact(tr("Placement", "Read per token"), bytes_text(read)))
        here = {card.device for card in cards}
        if len(here) > 1:
            text = ms_text(sum(self._ms(card, card.device) for card in cards))
            facts.append(Fact(tr("Placement", "As they lie now"), text))
        ordered = sorted(self._desk.devices(), key=lambda row: row.device not in here)
        for row in ordered[:MOST_DEVICES]:
            label = tr("Placement", "On %1, now") if here == {row.device} else tr("Placement", "On %1")
            facts.append(Fact(filled(label, row.name), ms_text(sum(self._ms(card, row.device) for card in cards))))
        return tuple(facts)

    def _read_of(self, card: Card) -> float:
        outline = self._desk.outline
        return 0.0 if outline is None else outline.of(_unit(card)).read_per_token * self._share(card)

    def _share(self, card: Card) -> float:
        """Which part of a layer's reads are about: of chosen experts those that they serve, else all."""
        if not card.n_hot or not card.n_experts:
            return 1.0
        served = self._desk.heat.share(card.layer, card.n_hot)
        return card.n_hot / card.n_experts if served is None else served

    def _ms(self, card: Card, device: Device) -> float:
        planner = self._desk.planner
        return 0.0 if planner is None else planner.unit_ms(_unit(card), device) * self._share(card)

    def _targets(self, cards: Sequence[Card], ids: Sequence[CardId]) -> tuple[Target, ...]:
        found = []
        for row in self._desk.devices():
            here = all(card.device == row.device for card in cards)
            found.append(Target(row.name, "" if here else self._desk.refusal(ids, row.device), here))
        return tuple(found)

    def _whole(self) -> Selection:
        """What there is to say of the model while nothing is selected."""
        outline, prediction = self._desk.outline, self._desk.prediction
        assert outline is not None
        info = outline.info
        facts = [
            Fact(tr("Placement", "Size"), bytes_text(info.file_bytes)),
            Fact(tr("Placement", "Layers"), str(outline.n_layers)),
            Fact(tr("Placement", "Context"), filled(tr("Placement", "%1 tokens"), count_text(self._desk.n_ctx))),
        ]
        if outline.n_experts:
            text = filled(tr("Placement", "%1 of %2 a token"), outline.n_used, outline.n_experts)
            facts.append(Fact(tr("Placement", "Experts"), text))
        if prediction is not None:
            facts += [
                Fact(device_name(one.device), ms_text(one.decode_ms), "err" if one.over else "text")
                for one in prediction.devices
                if one.used and one.decode_ms >= 0.005
            ][:MOST_DEVICES]
        return Selection(info.name, tr("Placement", "Select cards to see and move them"), tuple(facts))

    # --- experts -----------------------------------------------------------------------------------------------------

    def _use(self, cards: Sequence[Card]) -> Use | None:
        outline = self._desk.outline
        if outline is None or not outline.n_experts:
            return None
        layers = _layers(cards)
        if cards and not layers and self._layer is None:
            return None
        counts = self._desk.heat.counts
        span = self._span
        layer = self._layer if self._layer is not None else (layers[0] if layers else None)
        if layer is None:
            return all_layers(counts, outline.n_experts, span)
        n_hot = next((card.n_hot for card in cards if card.layer == layer and card.n_hot), 0)
        return one_layer(layer, counts.get(layer, ()), outline.n_experts, n_hot or max(1, outline.n_experts // 4), span)

    def _on_layer_requested(self, layer: int) -> None:
        self._layer = layer
        self._board.select((UnitId("experts", layer),))
        self._show_use()

    # --- acting ------------------------------------------------------------------------------------------------------

    def _on_move_requested(self, number: int) -> None:
        devices = self._desk.devices()
        if number < len(devices):
            self._board.move_selected(devices[number].device)

    def _on_pin_requested(self) -> None:
        cards = self._board.selected_cards()
        self._desk.pin((card.id for card in cards), not all(card.pinned for card in cards))
        self.refresh()

    def _on_split_requested(self) -> None:
        button = self._page.inspector.split
        self.split_menu().popup(button.mapToGlobal(QPoint(0, button.height() + 4)))

    def split_menu(self) -> QMenu:
        """How many of the hottest experts of the selected layers shall be moved on their own."""
        menu = QMenu(self._page)
        menu.aboutToHide.connect(menu.deleteLater)
        cards = self._board.selected_cards()
        layers, outline = _layers(cards), self._desk.outline
        n_experts = 0 if outline is None else outline.n_experts
        nbytes = sum(card.nbytes for card in cards if card.family == "experts")
        for share in _SHARES:
            n_hot = max(1, round(n_experts * share))
            text = filled(
                tr("Placement", "Hottest %1 of %2 · %3"), n_hot, n_experts, bytes_text(nbytes * n_hot // max(1, n_experts))
            )
            served = [self._desk.heat.share(layer, n_hot) for layer in layers]
            known = [one for one in served if one is not None]
            if known:
                percent = round(100 * sum(known) / len(known))
                text = f"{text} · {filled(tr('Placement', '%1 of reads'), f'{percent} %')}"
            menu.addAction(text, partial(self._split, layers, n_hot))
        menu.addSeparator()
        menu.addAction(tr("Placement", "All experts together"), partial(self._split, layers, 0))
        return menu

    def _split(self, layers: Sequence[int], n_hot: int) -> None:
        self._desk.split(layers, n_hot)
        self.refresh()


def _layers(cards: Sequence[Card]) -> tuple[int, ...]:
    """Layers whose experts are selected."""
    return tuple(sorted({card.layer for card in cards if card.family in ("experts", "hot")}))


def _unit(card: Card) -> UnitId:
    """Whose facts are those of a card: copies of experts have those of their layer."""
    return UnitId("experts", card.layer) if isinstance(card.id, HotSet) else card.id


def _moved_bytes(card: Card) -> int:
    return card.hot_bytes if card.n_hot and card.hot_bytes else card.nbytes


def subtitle_of(cards: Sequence[Card]) -> str:
    """`Experts, layers 4–6, hottest 64`; several families: their names and layers."""
    families = list(dict.fromkeys(card.family for card in cards))
    names = ", ".join(family_name(one) for one in families)
    layers = sorted({card.layer for card in cards if card.layer >= 0})
    if not layers:
        return names if len(cards) > 1 else ""
    word = tr("Placement", "layer %1") if len(layers) == 1 else tr("Placement", "layers %1")
    text = f"{names}, {filled(word, ranges_text(layers))}"
    hot = {card.n_hot for card in cards if card.n_hot}
    return f"{text}, {filled(tr('Placement', 'hottest %1'), max(hot))}" if hot else text


def ms_text(ms: float) -> str:
    """`1.42 ms`, `29.6 ms`."""
    return f"{ms:.2f} ms" if ms < 9.995 else f"{ms:.1f} ms"


def one_layer(layer: int, row: Sequence[int], n_experts: int, n_hot: int, span: str) -> Use:
    """The grid of a layer with what its hottest experts serve."""
    title = filled(tr("Placement", "Expert use, layer %1"), layer)
    total, top = sum(row), max(row, default=0)
    if not total:
        return Use(title, sentence=tr("Placement", "Nothing counted yet. Chat for a while, or count now."))
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:n_hot]
    percent = round(100 * sum(row[i] for i in order) / total)
    sentence = filled(tr("Placement", "Hottest %1 of %2 serve %3 of reads"), n_hot, n_experts, f"{percent} %")
    levels = bytes(round(255 * n / top) for n in row)
    return Use(title, span, levels, len(row), (layer,), f"{100 * top / total:.1f} %", sentence)


def all_layers(counts: Mapping[int, Sequence[int]], n_experts: int, span: str) -> Use:
    """The map of all layers, each on its own scale."""
    title = tr("Placement", "Expert use, all layers")
    layers = tuple(sorted(layer for layer, row in counts.items() if any(row)))
    if not layers:
        return Use(title, sentence=tr("Placement", "Nothing counted yet. Chat for a while, or count now."))
    rows, top_share, served = [], 0.0, []
    n_hot = max(1, n_experts // 4)
    for layer in layers:
        row = counts[layer]
        top, total = max(row), sum(row)
        rows.append(bytes(round(255 * n / top) for n in row))
        top_share = max(top_share, top / total)
        served.append(sum(sorted(row, reverse=True)[:n_hot]) / total)
    percent = round(100 * sum(served) / len(served))
    sentence = filled(tr("Placement", "Hottest %1 of %2 serve %3 of reads"), n_hot, n_experts, f"{percent} %")
    return Use(title, span, b"".join(rows), n_experts, layers, f"{100 * top_share:.1f} %", sentence)
