"""Every flag of the training command, once: name, type, default, limits, help and group.

Names and defaults are those of qlora.py where it has the flag. A flag in `Settings` is honoured; one in `UNSUPPORTED`
is known from qlora.py's scripts and refused when it would change the run; anything else is unknown.
"""

# ruff: noqa: RUF009 (declare() makes a dataclass field)

from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_type_hints

from clockgate_trainer.flags.evaluation import GROUP as EVALUATION
from clockgate_trainer.flags.evaluation import EvaluationFlags
from clockgate_trainer.flags.flag import Flag, Type, Unsupported, declare, flag_of
from clockgate_trainer.flags.generation import GROUP as GENERATION
from clockgate_trainer.flags.generation import GenerationFlags
from clockgate_trainer.flags.optimizers import OPTIMIZERS, REFUSED_OPTIMIZERS

GROUPS = ("model", "data", "adapter", "training", "run", "checkpoints", "clock gate", EVALUATION, GENERATION)
WARN_SHARE = 0.1
# Beyond these a number is a slip of the hand, and some would not fit the types that carry them.
LARGEST_SEED = 2**62
LARGEST_FLOAT32 = 3e38
WEEK_S = 7 * 24 * 3600
HOUR_MS = 3_600_000

_MODEL, _DATA, _ADAPTER, _TRAINING, _RUN, _CHECKPOINTS, _GATE, *_ = GROUPS


@dataclass(frozen=True)
class Settings(GenerationFlags, EvaluationFlags):
    """The flags of one run, all valid by themselves and together. Made by `flags.parse.parse`."""

    model_name_or_path: str = declare("EleutherAI/pythia-12b", _MODEL, "base model: a folder or a hub id")
    trust_remote_code: bool = declare(False, _MODEL, "run model code that comes with the model")
    use_auth_token: bool = declare(False, _MODEL, "send the stored hub token", aliases=("use_auth",))
    cache_dir: Path | None = declare(None, _MODEL, "folder of the hub cache", unset="the library's own")
    bits: int = declare(4, _MODEL, "bits per weight of the base model", choices=("4", "8", "16", "32"))
    quant_type: str = declare("nf4", _MODEL, "4-bit data type", choices=("nf4", "fp4"))
    double_quant: bool = declare(True, _MODEL, "quantise the quantisation constants too")
    bf16: bool = declare(False, _MODEL, "compute in bfloat16 (else in float32)")
    fp16: bool = declare(False, _MODEL, "compute in float16 with loss scaling; --bf16 is as small and more stable")
    device_map: str | None = declare(
        None,
        _MODEL,
        "auto: one process spreads the layers over its devices where a copy does not fit on one; or a device number "
        "for each module, as in \"{'': 0}\"",
        unset="a copy on the device of each rank",
    )
    max_memory: str | None = declare(
        None, _MODEL, "what may be used of each device, as in \"{0: '46000MB'}\"", unset="all that is free"
    )
    max_memory_MB: int = declare(  # noqa: N815 (qlora.py's name)
        80000, _MODEL, "what --device_map auto may use of every device, where --max_memory does not say", low=1
    )
    gradient_checkpointing: bool = declare(True, _MODEL, "recompute activations in the backward pass to save memory")

    dataset: str = declare(
        "alpaca", _DATA, "training data: a file, a known set or a hub id; several as NAME:WEIGHT,NAME:WEIGHT"
    )
    dataset_format: str | None = declare(
        None,
        _DATA,
        "what columns mean, see docs/data.md",
        choices=(
            "alpaca", "alpaca-clean", "chip2", "self-instruct", "hh-rlhf", "oasst1", "input-output", "longform", "chat",
        ),
        unset="that of a known set, else input-output",
    )  # fmt: skip
    chat_template: Path | None = declare(None, _DATA, "Jinja template for chats", unset="the tokenizer's")
    strict_data: bool = declare(False, _DATA, "refuse suspect rows too, such as empty answers")
    max_train_samples: int | None = declare(None, _DATA, "use the first N rows only", low=1, unset="all rows")
    source_max_len: int = declare(1024, _DATA, "prompts are cut to N tokens, the begin mark included", low=1)
    target_max_len: int = declare(256, _DATA, "answers are cut to N tokens, the end mark included", low=1)
    train_on_source: bool = declare(False, _DATA, "learn the prompt as well as the answer")
    data_seed: int | None = declare(None, _DATA, "seed of the row order", low=0, high=LARGEST_SEED, unset="--seed")
    group_by_length: bool = declare(True, _DATA, "put rows of about equal length side by side (not with --packing)")
    packing: bool = declare(False, _DATA, "fill rows of constant length with whole samples; batches count such rows")
    pack_length: int | None = declare(
        None, _DATA, "tokens of a packed row", low=2, unset="--source_max_len + --target_max_len"
    )
    keep_steps: bool = declare(
        False, _DATA, "with --packing take --max_steps as it is, and not as the samples that it means without packing"
    )
    token_cache: Path | None = declare(None, _DATA, "folder of tokenized data", unset=".tokens in the run folder")

    full_finetune: bool = declare(False, _ADAPTER, "train all weights and no adapter; needs --bits 16 or 32")
    lora_r: int = declare(64, _ADAPTER, "rank of the adapter", low=1, high=65536)
    lora_alpha: float = declare(16.0, _ADAPTER, "scale of the adapter: alpha / r", low=0)
    lora_dropout: float = declare(0.0, _ADAPTER, "dropout before the adapter", low=0, high=0.999)
    lora_modules: str = declare(
        "all", _ADAPTER, "'all' linear layers but the head; or names separated by commas; or a pattern for whole names"
    )
    modules_to_save: str | None = declare(
        None, _ADAPTER, "modules to train as a whole beside the adapter, separated by commas", unset="none"
    )
    use_rslora: bool = declare(False, _ADAPTER, "scale the adapter by alpha / sqrt(r) instead of alpha / r")
    use_dora: bool = declare(False, _ADAPTER, "learn the size of each weight column apart from its direction (slower)")
    init_adapter: Path | None = declare(
        None, _ADAPTER, "folder of an adapter to start from", unset="a new adapter, which changes nothing at first"
    )

    do_train: bool = declare(
        True, _TRAINING, "false: no step is taken; with --do_predict the weights that are there answer"
    )
    max_steps: int = declare(10000, _TRAINING, "optimizer steps; -1: as many as --num_train_epochs takes", low=-1)
    num_train_epochs: float | None = declare(
        None,
        _TRAINING,
        "passes over the data, instead of --max_steps",
        low=0.001,
        high=1e6,
        unset="--max_steps decides",
    )
    per_device_train_batch_size: int = declare(1, _TRAINING, "rows per rank in one micro-batch", low=1)
    gradient_accumulation_steps: int = declare(16, _TRAINING, "micro-batches per optimizer step", low=1)
    oom_fallback: bool = declare(
        True,
        _TRAINING,
        "when a micro-batch does not fit on some rank, all ranks halve it and take more of them; off: the run ends",
    )
    learning_rate: float = declare(2e-4, _TRAINING, "peak learning rate", low=0, high=LARGEST_FLOAT32)
    lr_scheduler_type: str = declare(
        "constant",
        _TRAINING,
        "shape of the learning rate; constant has no warm-up, whatever the warm-up flags say",
        choices=("constant", "constant_with_warmup", "linear", "cosine"),
    )
    warmup_ratio: float = declare(0.03, _TRAINING, "share of all steps spent warming up", low=0, high=1)
    warmup_steps: int = declare(0, _TRAINING, "steps spent warming up; above 0 it wins over --warmup_ratio", low=0)
    optim: str = declare(
        "paged_adamw_32bit",
        _TRAINING,
        "optimizer; on CPU the paged ones do not page",
        choices=tuple(OPTIMIZERS),
        refused=REFUSED_OPTIMIZERS,
    )
    weight_decay: float = declare(0.0, _TRAINING, "decoupled weight decay", low=0)
    adam_beta1: float = declare(0.9, _TRAINING, "decay of the first moment", low=0, high=0.999999)
    adam_beta2: float = declare(0.999, _TRAINING, "decay of the second moment", low=0, high=0.999999)
    adam_epsilon: float = declare(1e-8, _TRAINING, "added to the denominator", low=0)
    max_grad_norm: float = declare(0.3, _TRAINING, "gradient norm is clipped to this; 0: never", low=0)
    max_bad_steps: int = declare(
        20, _TRAINING, "steps in a row without a finite loss and gradient after which the run ends; 0: never", low=0
    )

    output_dir: Path = declare(Path("./output"), _RUN, "run folder")
    device: str = declare("auto", _RUN, "where to train; auto: CUDA when there is one", choices=("auto", "cpu", "cuda"))
    seed: int = declare(42, _RUN, "seed of adapter and dropout", low=0, high=LARGEST_SEED)
    deterministic: bool = declare(False, _RUN, "only deterministic kernels: resume is bit-identical on CUDA too")
    logging_steps: int = declare(10, _RUN, "steps between two progress lines", low=1)
    report_to: str = declare(
        "none", _RUN, "send metrics to these too, separated by commas: tensorboard, wandb, mlflow and others; or all"
    )
    ddp_timeout: float = declare(
        180.0, _RUN, "seconds until a silent rank in a gradient exchange is given up", low=1, high=WEEK_S
    )
    job_name: str | None = declare(None, _RUN, "name of the job in the daemon's log", unset="the run folder's name")

    save_strategy: str = declare(
        "steps", _CHECKPOINTS, "no: save only at the last step and when stopped", choices=("steps", "no")
    )
    save_steps: int = declare(250, _CHECKPOINTS, "steps between two checkpoints", low=1)
    save_total_limit: int = declare(40, _CHECKPOINTS, "checkpoints kept, newest by step; 0: all", low=0)
    save_timeout: float = declare(
        600.0,
        _CHECKPOINTS,
        "seconds, beyond --vote_timeout, until a rank that writes a checkpoint is given up",
        low=1,
        high=WEEK_S,
    )
    resume_from_checkpoint: str = declare(
        "auto", _CHECKPOINTS, "auto: the newest verified one in the run folder, if any; PATH; none", bare="auto"
    )
    allow_world_size_change: bool = declare(
        False,
        _CHECKPOINTS,
        "go on from a checkpoint of another number of ranks: no row is skipped or read twice, but batches and random "
        "numbers are others, so not bit-identically",
    )
    async_save: bool = declare(
        False, _CHECKPOINTS, "write periodic checkpoints while training goes on; one at a time, the next waits for it"
    )
    on_divergence: str = declare(
        "stop",
        _CHECKPOINTS,
        "when adapters differ between ranks: stop (exit 76), or broadcast rank 0's (the majority's, if rank 0 is "
        "outvoted) adapter and optimizer state to all and go on",
        choices=("stop", "broadcast"),
    )

    time_sync_check: str = declare(
        "auto",
        _GATE,
        "ask the node's clock daemon at every step; auto: train also when none answers, by --on_unknown",
        choices=("true", "false", "auto"),
        bare="true",
    )
    clock_daemon: str | None = declare(
        None, _GATE, "address of the daemon", unset="$CLOCKGATE_ADDRESS, then /run/clockgate/clockgate.sock"
    )
    max_sync_delay: float = declare(
        50.0, _GATE, "milliseconds between two clocks above which all ranks wait", low=1e-6, high=HOUR_MS
    )
    warn_sync_delay: float | None = declare(
        None,
        _GATE,
        "milliseconds between two clocks above which to warn",
        low=1e-6,
        high=HOUR_MS,
        unset="a tenth of the above",
    )
    on_unknown: str | None = declare(
        None,
        _GATE,
        "what to do when a node cannot tell its clock's bound",
        choices=("warn", "hold", "stop"),
        unset="hold under --time_sync_check true, else warn",
    )
    hold_timeout: float = declare(
        300.0, _GATE, "seconds of waiting after which the run is saved and stopped", low=0, high=WEEK_S
    )
    vote_timeout: float = declare(
        120.0, _GATE, "seconds until a rank that does not vote is given up", low=1, high=WEEK_S
    )
    alert_webhook: str | None = declare(
        None, _GATE, "address that gets a POST on a long wait and on a stop", unset="$CLOCKGATE_ALERT_WEBHOOK, if set"
    )
    alert_exec: str | None = declare(
        None, _GATE, "program, run without a shell, that gets the same on its standard input", unset="none"
    )
    alert_after_hold: float = declare(60.0, _GATE, "seconds of waiting that make a wait a long one", low=0, high=WEEK_S)

    @property
    def order_seed(self) -> int:
        """Seed of the row order."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def packed_tokens(self) -> int | None:
        """Tokens of a packed row; None without packing."""
        return (self.pack_length or self.source_max_len + self.target_max_len) if self.packing else None

    @property
    def warn_delay_ms(self) -> float:
        """Pairwise bound, ms, above which ranks warn."""
        return self.max_sync_delay * WARN_SHARE if self.warn_sync_delay is None else self.warn_sync_delay

    @property
    def unknown_policy(self) -> str:
        """What an unknown bound means: warn, hold or stop."""
        return self.on_unknown or ("hold" if self.time_sync_check == "true" else "warn")

    @property
    def job(self) -> str:
        """Name of the job."""
        return self.job_name or self.output_dir.resolve().name


def _flags() -> tuple[Flag, ...]:
    hints = get_type_hints(Settings)
    return tuple(flag_of(declared, hints[declared.name]) for declared in fields(Settings))


FLAGS = _flags()

_EVAL = "evaluate after the run with another tool"
UNSUPPORTED = (
    Unsupported("remove_unused_columns", Type.BOOL, (False,)),
    Unsupported("ddp_find_unused_parameters", Type.BOOL, (False,), "with adapters only false works"),
    Unsupported("logging_strategy", Type.TEXT, ("steps",), "use --logging_steps"),
    Unsupported("torch_compile", Type.BOOL, (False,)),
    Unsupported("dataloader_num_workers", Type.INT, None),
)
