import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]

def saw(ids: I64, slot_of: I32, still: I32, scores: F64, gain: float, missed: I64, hits: I64) -> tuple[int, int]: ...
def wishes(
    missed: I64, scores: F64, held: I64, free: npt.NDArray[np.uint8], margin: float, most: int
) -> list[tuple[float, int, int, int]]: ...
