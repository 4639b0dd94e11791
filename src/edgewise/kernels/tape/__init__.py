"""A tape: training of small networks, and recursions, as instructions of one loop on a CPU."""

from edgewise.kernels.tape.recording import Recorder
from edgewise.kernels.tape.training import TapeTraining, optimiser_options
from edgewise.kernels.tape.writer import NotRecordedError

__all__ = ["NotRecordedError", "Recorder", "TapeTraining", "optimiser_options"]
