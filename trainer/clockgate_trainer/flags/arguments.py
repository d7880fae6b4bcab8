"""Fields of transformers' TrainingArguments that this trainer refuses, each with the reason.

A field is either a flag (see `table`), another spelling of one (see `spellings`), or a row here. A row is accepted
with one of its `inert` values, which change nothing about a run here, and refused with any other.
"""

from clockgate_trainer.flags.flag import Type, Unsupported

_EVAL = "evaluation computes as training does"
_HUB = "nothing is uploaded: push the finished checkpoint folder with huggingface-cli upload"
_LOADER = "data are tokenized once and read from a memory map: there are no loader processes"
_SHARDED = "every rank holds a copy of the quantised base, or one process splits its layers (--device_map auto)"
_TRACKER = "sinks of --report_to read their own variables, such as WANDB_PROJECT and TENSORBOARD_LOGGING_DIR"
_LOGGING = "events.jsonl and metrics.jsonl are always written"
_FUSED = "layers of quantised models with float32 norms are not patched"
_SAVED = "a checkpoint always holds all that a bit-identical resume needs"

ARGUMENTS = (
    Unsupported("lr_scheduler_kwargs", Type.TEXT, ("{}",), "schedules have no further parameters"),
    Unsupported("optim_args", Type.TEXT, (), "use --adam_beta1, --adam_beta2, --adam_epsilon, --weight_decay"),
    Unsupported("optim_target_modules", Type.TEXT, (), "galore-like optimizers need full gradients"),
    Unsupported(
        "average_tokens_across_devices", Type.BOOL, (True,), "the loss is always a mean over all ranks' tokens"
    ),
    Unsupported("label_smoothing_factor", Type.FLOAT, (0.0,), "the loss is plain cross entropy"),
    Unsupported("bf16_full_eval", Type.BOOL, (False,), _EVAL),
    Unsupported("fp16_full_eval", Type.BOOL, (False,), _EVAL),
    Unsupported("tf32", Type.BOOL, (False,), "use --bf16"),
    Unsupported(
        "gradient_checkpointing_kwargs", Type.TEXT, (), "checkpointing is never reentrant, which fails under DDP"
    ),
    Unsupported("activation_checkpointing_kwargs", Type.TEXT, (), "checkpointing is never reentrant"),
    Unsupported("torch_compile_backend", Type.TEXT, (), "models are not compiled"),
    Unsupported("torch_compile_mode", Type.TEXT, (), "models are not compiled"),
    Unsupported("use_liger_kernel", Type.BOOL, (False,), _FUSED),
    Unsupported("liger_kernel_config", Type.TEXT, (), _FUSED),
    Unsupported("neftune_noise_alpha", Type.FLOAT, (0.0,), "embeddings get no noise"),
    Unsupported("torch_empty_cache_steps", Type.INT, (), "set PYTORCH_CUDA_ALLOC_CONF instead"),
    Unsupported("auto_find_batch_size", Type.BOOL, (False, True), "micro-batches that do not fit are always halved"),
    Unsupported("logging_first_step", Type.BOOL, (False, True), _LOGGING),
    Unsupported("log_on_each_node", Type.BOOL, (False, True), _LOGGING),
    Unsupported("logging_nan_inf_filter", Type.BOOL, (False,), "a loss that is no number is shown as it is"),
    Unsupported("include_num_input_tokens_seen", Type.TEXT, ("no", "all", "non_padding", "true", "false"), _LOGGING),
    Unsupported("include_tokens_per_second", Type.BOOL, (False, True), _LOGGING),
    Unsupported("log_level", Type.TEXT, ("passive", "info", "warning"), _LOGGING),
    Unsupported("log_level_replica", Type.TEXT, ("passive", "info", "warning"), _LOGGING),
    Unsupported("disable_tqdm", Type.BOOL, (False, True), "progress is a line every --logging_steps"),
    Unsupported("project", Type.TEXT, ("huggingface",), _TRACKER),
    Unsupported("trackio_space_id", Type.TEXT, (), _TRACKER),
    Unsupported("trackio_bucket_id", Type.TEXT, (), _TRACKER),
    Unsupported("trackio_static_space_id", Type.TEXT, (), _TRACKER),
    Unsupported("prediction_loss_only", Type.BOOL, None),
    Unsupported("eval_do_concat_batches", Type.BOOL, None),
    Unsupported("eval_use_gather_object", Type.BOOL, None),
    Unsupported("eval_accumulation_steps", Type.INT, None),
    Unsupported("include_for_metrics", Type.TEXT, None),
    Unsupported("include_inputs_for_metrics", Type.BOOL, None),
    Unsupported("batch_eval_metrics", Type.BOOL, None),
    Unsupported("save_only_model", Type.BOOL, (False,), _SAVED),
    Unsupported("save_safetensors", Type.BOOL, (True,), "adapters are always saved as safetensors"),
    Unsupported(
        "save_on_each_node", Type.BOOL, (False,), "run folders that nodes do not share are found out by themselves"
    ),
    Unsupported("enable_jit_checkpoint", Type.BOOL, (False,), "SIGTERM always saves first, on all ranks together"),
    Unsupported("push_to_hub", Type.BOOL, (False,), _HUB),
    Unsupported("hub_token", Type.TEXT, (), _HUB),
    Unsupported("hub_private_repo", Type.BOOL, None),
    Unsupported("hub_model_id", Type.TEXT, (), _HUB),
    Unsupported("hub_strategy", Type.TEXT, None),
    Unsupported("hub_always_push", Type.BOOL, (False,), _HUB),
    Unsupported("hub_revision", Type.TEXT, (), _HUB),
    Unsupported("ignore_data_skip", Type.BOOL, (False,), _SAVED),
    Unsupported("restore_callback_states_from_checkpoint", Type.BOOL, (False, True), _SAVED),
    Unsupported("accelerator_config", Type.TEXT, (), "batches are split by row, see --gradient_accumulation_steps"),
    Unsupported("parallelism_config", Type.TEXT, (), _SHARDED),
    Unsupported("dataloader_drop_last", Type.BOOL, (False,), "the last step of a pass has fewer rows; none is dropped"),
    Unsupported("dataloader_pin_memory", Type.BOOL, (False, True), _LOADER),
    Unsupported("dataloader_persistent_workers", Type.BOOL, (False, True), _LOADER),
    Unsupported("dataloader_prefetch_factor", Type.INT, None),
    Unsupported("dataloader_multiprocessing_context", Type.TEXT, None),
    Unsupported("dataloader_in_order", Type.BOOL, (True,), _LOADER),
    Unsupported("label_names", Type.TEXT, ("labels",), "labels come from the answers"),
    Unsupported("length_column_name", Type.TEXT, None),
    Unsupported("ddp_bucket_cap_mb", Type.INT, (), "buckets are torch's: an adapter's gradients hide behind backward"),
    Unsupported("ddp_broadcast_buffers", Type.BOOL, (False,), "a broadcast would leave before the gate has answered"),
    Unsupported("ddp_static_graph", Type.BOOL, (False,), "not with micro-batches that skip the exchange"),
    Unsupported("ddp_backend", Type.TEXT, ("nccl", "gloo"), "NCCL on CUDA, else gloo"),
    Unsupported("fsdp", Type.TEXT, ("false",), _SHARDED),
    Unsupported("fsdp_config", Type.TEXT, (), _SHARDED),
    Unsupported("fsdp_min_num_params", Type.INT, (0,), _SHARDED),
    Unsupported("fsdp_transformer_layer_cls_to_wrap", Type.TEXT, (), _SHARDED),
    Unsupported("deepspeed", Type.TEXT, (), _SHARDED),
    Unsupported("debug", Type.TEXT, (), "use TORCH_DISTRIBUTED_DEBUG"),
    Unsupported("skip_memory_metrics", Type.BOOL, (True,), "peak memory is in metrics.jsonl"),
    Unsupported("local_rank", Type.INT, (-1,), "torchrun tells ranks by LOCAL_RANK"),
    Unsupported("overwrite_output_dir", Type.BOOL, (False,), "runs are resumed; for a new one give a new --output_dir"),
    Unsupported("logging_dir", Type.TEXT, (), _TRACKER),
    Unsupported("half_precision_backend", Type.TEXT, ("auto",), "precision is torch's autocast"),
    Unsupported("fp16_opt_level", Type.TEXT, None),
    Unsupported("jit_mode_eval", Type.BOOL, (False,), _EVAL),
    Unsupported("use_ipex", Type.BOOL, (False,), "CPU runs use plain torch"),
    Unsupported("use_mps_device", Type.BOOL, (False,), "bitsandbytes needs CUDA or CPU"),
    Unsupported("past_index", Type.INT, (-1,)),
    Unsupported("mp_parameters", Type.TEXT, ()),
    Unsupported("tpu_num_cores", Type.INT, ()),
    Unsupported("tpu_metrics_debug", Type.BOOL, (False,)),
    Unsupported("ray_scope", Type.TEXT, None),
    Unsupported("torchdynamo", Type.TEXT, (), "models are not compiled"),
    Unsupported("split_batches", Type.BOOL, (False,), "batches are split by row"),
    Unsupported("sortish_sampler", Type.BOOL, (False,), "use --group_by_length"),
    Unsupported("generation_max_length", Type.INT, (), "use --max_new_tokens"),
    Unsupported("generation_config", Type.TEXT, (), "give the generation flags themselves, such as --num_beams"),
)
