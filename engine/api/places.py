"""The values of a placement, for the application: what can be moved, and where it lies."""

from engine.arch.units import UnitId, UnitKind
from engine.placement.options import KvType
from engine.placement.placement import Device, Gpu, Numa, Placement

__all__ = ["Device", "Gpu", "KvType", "Numa", "Placement", "UnitId", "UnitKind"]
