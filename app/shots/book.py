"""All screens of the picture book by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtWidgets import QWidget

from app.shots.doctor_screens import DOCTOR
from app.shots.findings_screens import FINDINGS
from app.shots.monitors_screens import MONITORS
from app.shots.overlays import OVERLAYS
from app.shots.placement_screens import PLACEMENT
from app.shots.screens import PAGES
from app.shots.worker_screens import WORKERS

SCREENS: Mapping[str, Callable[[], QWidget]] = {**PAGES, **PLACEMENT, **MONITORS, **FINDINGS, **DOCTOR, **OVERLAYS, **WORKERS}
