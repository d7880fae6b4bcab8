"""How much device memory a run takes, part by part. Pure arithmetic; the origin of every factor is beside it.

Sizes are bytes. What is predicted is the peak that the framework's allocator counts; the driver's context comes on top
(`DRIVER_BYTES`).
"""

from dataclasses import dataclass

from clockgate_trainer.planner.shape import Shape

GIB = 2**30
# A CUDA context with cuBLAS and NCCL workspaces, as nvidia-smi shows it beside the allocator's figure.
DRIVER_BYTES = 1.2 * GIB
_FLOAT32 = 4
# bitsandbytes: a constant per block of 64 weights, float32; with double quantisation one byte, and a float32 per 256.
_BLOCK = 64
_NESTED_BLOCK = 256
# Per logit at the end of the forward: the head's output, its float32 copy, and the log-softmax that backward needs.
_LOGIT_COPIES_FLOAT32 = 2


@dataclass(frozen=True)
class Precision:
    """How the base is held and computed. `bits` 4, 8, 16 or 32; `compute_bytes` per activation: 2 or 4.

    What --bits does not quantise is held in 32 bits where linears are, else in the compute type.
    """

    bits: int
    double_quant: bool
    compute_bytes: int

    @property
    def other_bytes(self) -> int:
        """Bytes of an embedding's or a head's weight."""
        return _FLOAT32 if self.bits == 32 else self.compute_bytes

    def linear_bytes(self, weights: int) -> float:
        """Bytes of `weights` weights of linear layers."""
        if self.bits == 4:
            constants = 1 + _FLOAT32 / _NESTED_BLOCK if self.double_quant else _FLOAT32
            return weights / 2 + weights / _BLOCK * constants
        # 8 bits carry a float32 per output row, which is too little to count.
        return weights * self.bits / 8


@dataclass(frozen=True)
class Micro:
    """One micro-batch on one rank: `rows` of `tokens` each, padding counted."""

    rows: int
    tokens: int

    @property
    def slots(self) -> int:
        """Token slots."""
        return self.rows * self.tokens


@dataclass(frozen=True)
class Trained:
    """What is trained: `parameters` of them, of `weight_bytes` each, as their gradients; `optimizer_bits` 32 or 8.

    `adapter_rank` is 0 where the base itself is trained (`whole`). `dropout` tells whether the adapter has any. The
    state of a `paged` optimizer is lent memory: it goes to the host when the device is short, and no allocator counts
    it. `moments_bytes` is that state per parameter.
    """

    parameters: int
    adapter_rank: int
    dropout: bool
    optimizer_bits: int
    paged: bool
    weight_bytes: int = _FLOAT32
    whole: bool = False
    moments_bytes: float | None = None

    @property
    def moments(self) -> float:
        """Bytes of the optimizer's state."""
        known = 8.0 if self.optimizer_bits == 32 else 2.0 + 2 * _FLOAT32 / 256
        return self.parameters * (known if self.moments_bytes is None else self.moments_bytes)


@dataclass(frozen=True)
class Parts:
    """Device memory of one copy of the model, in bytes, by what holds it.

    `activations` are kept from forward to backward. `working` is the larger of what the loss takes at the end of the
    forward and what one layer takes while it is computed again or dequantised: they never meet. `paged` is the state of
    a paged optimizer, which is no part of the peak.
    """

    weights: float
    adapter: float
    gradients: float
    optimizer: float
    activations: float
    working: float
    paged: float

    @property
    def total(self) -> float:
        """The peak."""
        return self.weights + self.adapter + self.gradients + self.optimizer + self.activations + self.working


def measure(shape: Shape, precision: Precision, trained: Trained, micro: Micro, *, checkpointing: bool) -> Parts:
    """Peak memory of training `shape` on one device."""
    layer = layer_activation_bytes(shape, precision, trained) * micro.slots
    cast = cast_bytes(shape, precision)
    # With checkpointing the input of every layer is kept; one layer is computed again at a time.
    kept_of_layer = shape.hidden * precision.compute_bytes * micro.slots if checkpointing else layer + cast
    at_once = (layer + cast if checkpointing else 0.0) + _workspace(shape, precision)
    # Autocast keeps its copies of weights that are trained until the forward is over.
    cached = shape.layers * cast if checkpointing and trained.whole else 0.0
    moments = trained.moments
    trained_bytes = float(trained.parameters * trained.weight_bytes)
    return Parts(
        weights=weight_bytes(shape, precision, trained),
        adapter=0.0 if trained.whole else trained_bytes,
        gradients=trained_bytes,
        optimizer=0.0 if trained.paged else moments,
        activations=shape.layers * kept_of_layer,
        working=max(logit_bytes(shape, precision) * micro.slots + cached, at_once),
        paged=moments if trained.paged else 0.0,
    )


def weight_bytes(shape: Shape, precision: Precision, trained: Trained | None = None) -> float:
    """The base: linears by --bits, embedding and head as the rest is held; norms in float32 where they are frozen."""
    norms = trained.weight_bytes if trained is not None and trained.whole else _FLOAT32
    return (
        precision.linear_bytes(shape.linear_weights)
        + (shape.embedding + shape.head) * precision.other_bytes
        + shape.other * norms
    )


def layer_activation_bytes(shape: Shape, precision: Precision, trained: Trained) -> float:
    """Bytes that the backward of one layer needs, per token slot.

    Counted from what autograd keeps of a decoder layer under this trainer's precision rules: the float32 inputs of two
    norms; query, key, value and result of attention; the outputs of a gated MLP's two factors and the activated one;
    what the adapters read, where layers that read the same value share it; and the adapters' inner values. With
    dropout every adapter reads a value of its own and keeps a mask of one byte.
    """
    compute = precision.compute_bytes
    inner = max(linear.outputs for linear in shape.linears)
    gated = sum(linear.per_layer for linear in shape.linears if linear.outputs == inner) > 1
    norms = 2 * shape.hidden * _FLOAT32
    attention = 2 * (shape.hidden + shape.key_value) * compute
    mlp = (3 if gated else 1) * inner * compute
    # Read before attention, after it, before the MLP and inside it.
    inputs = (3 * shape.hidden + inner) * compute
    if trained.dropout:
        inputs = sum(linear.inputs * linear.per_layer for linear in shape.linears) * (compute + 1)
    count = sum(linear.per_layer for linear in shape.linears)
    return norms + attention + mlp + inputs + count * trained.adapter_rank * compute


def cast_bytes(shape: Shape, precision: Precision) -> float:
    """Bytes that backward needs of copies of a layer's float32 weights, when it computes in a narrower type."""
    narrower = precision.bits == 32 and precision.compute_bytes < _FLOAT32
    return float(shape.layer_weights * precision.compute_bytes) if narrower else 0.0


def logit_bytes(shape: Shape, precision: Precision) -> float:
    """Bytes of logits and loss, per token slot, at the end of the forward."""
    return shape.vocabulary * (precision.compute_bytes + _LOGIT_COPIES_FLOAT32 * _FLOAT32)


def _workspace(shape: Shape, precision: Precision) -> float:
    """The largest linear while it is dequantised, for its matrix product."""
    if precision.bits > 8:
        return 0.0
    return max((linear.inputs * linear.outputs for linear in shape.linears), default=0) * precision.compute_bytes
