from clockgate_trainer.callback import ClockGateCallback as ClockGateCallback
from clockgate_trainer.gate.gate import ClockGate as ClockGate
from clockgate_trainer.gate.model import Decision as Decision
from clockgate_trainer.gate.model import Kind as Kind
from clockgate_trainer.gate.model import SaveVerdict as SaveVerdict
from clockgate_trainer.gate.model import StepVerdict as StepVerdict

__version__: str
__all__: list[str]
