"""A plan as text for people. Pure."""

from collections.abc import Sequence

from clockgate_trainer.flags.table import Settings
from clockgate_trainer.planner.layout import Parallelism
from clockgate_trainer.planner.memory import GIB
from clockgate_trainer.planner.plan import RunPlan

_MINUTE_S = 60.0
_HOUR_S = 3600.0


def text_of(settings: Settings, plan: RunPlan, notes: Sequence[str]) -> str:
    """Several lines, the answer first."""
    lines = [_answer(settings, plan), ""]
    lines += [*_memory(settings, plan), ""]
    lines += [*_batch(settings, plan), "", *_speed(plan)]
    for title, sentences in (("advice", plan.advice), ("notes", notes)):
        if sentences:
            lines += ["", f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def _answer(settings: Settings, plan: RunPlan) -> str:
    machines, layout = plan.machines, plan.layout
    where = f"{machines.nodes} x {machines.gpus} {machines.device.name}"
    verdict = layout.parallelism.value if plan.fits else "DOES NOT FIT"
    return f"{settings.model_name_or_path} on {where}: {verdict}: {layout.why}"


def _memory(settings: Settings, plan: RunPlan) -> list[str]:
    parts, layout = plan.parts, plan.layout
    quantised = f"{plan.precision.bits} bits" + (
        ", double quantisation" if settings.bits == 4 and settings.double_quant else ""
    )
    kept = "with checkpointing" if settings.gradient_checkpointing else "without checkpointing"
    kind = "float32" if plan.trained.weight_bytes == 4 else "bfloat16, without float32 copies"
    adapter = f"adapter, {plan.trained.parameters / 1e6:.1f} M in float32"
    if plan.trained.whole:
        adapter = f"no adapter: all weights are trained, in {kind}"
    rows = [
        (f"weights, {plan.shape.parameters / 1e9:.2f} G in {quantised}", parts.weights),
        (adapter, parts.adapter),
        ("gradients", parts.gradients),
        (f"optimizer, {plan.trained.optimizer_bits} bits", parts.optimizer),
        (f"activations of {plan.micro.rows} x {plan.micro.tokens} tokens, {kept}", parts.activations),
        ("logits and loss, or a layer at work", parts.working),
        ("one copy, peak", parts.total),
    ]
    if plan.trained.paged:
        rows[3] = (
            f"optimizer, {plan.trained.optimizer_bits} bits, paged: on the host when memory is short",
            parts.paged,
        )

    lines = ["memory, GiB:", *(f"  {size / GIB:8.2f}  {label}" for label, size in rows)]
    if layout.parallelism is Parallelism.LAYERS:
        spread = ", ".join(
            f"{count} layers {size / GIB:.1f} GiB"
            for count, size in zip(layout.layers_on, layout.bytes_on, strict=True)
        )
        lines.append(f"  per device: {spread}")
    lines.append(f"  {plan.machines.device.memory_bytes / GIB:8.2f}  memory of a device, the driver's share included")
    return lines


def _batch(settings: Settings, plan: RunPlan) -> list[str]:
    return [
        f"batch: {plan.micro.rows} rows x {settings.gradient_accumulation_steps} micro-batches x "
        f"{plan.replicas} data-parallel ranks = {plan.rows_per_step} rows in an optimizer step"
    ]


def _speed(plan: RunPlan) -> list[str]:
    speed = plan.speed
    lines = [
        f"speed at full rows ({speed.tokens} tokens a step): at most {speed.floor_tokens_s:,.0f} tokens/s by "
        f"arithmetic, {speed.likely_tokens_s:,.0f} likely ({speed.likely_s:.2f} s a step)"
    ]
    if plan.replicas > 1:
        lines.append(
            f"gradient exchange: {speed.exchange_s * 1000:.1f} ms a step by itself; {speed.exposed_share:.1%} of a "
            "step is not hidden by backward"
        )
    if plan.steps is not None:
        lines.append(f"{plan.steps} steps: about {_duration(plan.steps * speed.likely_s)}; shorter rows take less")
    return lines


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"
