"""Decoding with transformers: qlora.py's flags as a GenerationConfig, prompts in batches padded on the left."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList, TextStreamer

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.generation import GenerationFlags
from clockgate_trainer.generation.answer import Answer

# The most that torch's generators take as a seed.
_SEEDS = 2**63


class Decoder:
    """A model that answers. `autocast` is the type that training computed in; None for the model's own.

    The answer to a batch follows from the weights, the flags, `seed` and `number`, the batch's own: not from what was
    asked before.
    """

    def __init__(
        self, model: Any, tokenizer: Any, flags: GenerationFlags, *, seed: int, autocast: torch.dtype | None = None
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._seed = seed
        self._autocast = autocast
        self._device = model.get_input_embeddings().weight.device
        self._config = make_config(flags, model, tokenizer)
        self._ends = frozenset(_ends(model, tokenizer))

    def answer(
        self, prompts: Sequence[Sequence[int]], number: int, go_on: Callable[[], bool] | None = None
    ) -> list[Answer]:
        """Answers in the order of `prompts`, each at least one token long. `go_on` is asked after every token."""
        width = max(map(len, prompts))
        pad = self._config.pad_token_id
        ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        # By position, since the pad token can be one that prompts hold.
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        stops = StoppingCriteriaList([] if go_on is None else [_Interrupt(go_on)])
        made = self._generate(ids, mask, number, stopping_criteria=stops)[:, width:].tolist()
        return [self._answer(prompt, new) for prompt, new in zip(prompts, made, strict=True)]

    def stream(self, prompt: Sequence[int], number: int, show: Callable[[str], None]) -> Answer:
        """The answer to one prompt, whose text is handed to `show` in pieces as it grows. Not with beams."""
        ids = torch.tensor([list(prompt)])
        streamer = _Pieces(self._tokenizer, show)
        made = self._generate(ids, torch.ones_like(ids), number, streamer=streamer)[0, len(prompt) :].tolist()
        return self._answer(prompt, made)

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as a person reads them, without marks."""
        found: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return found.strip()

    def _generate(self, ids: torch.Tensor, mask: torch.Tensor, number: int, **how: Any) -> Any:
        torch.manual_seed((self._seed + number) % _SEEDS)
        kind = self._device.type
        with torch.inference_mode(), torch.autocast(kind, self._autocast, enabled=self._autocast is not None):
            try:
                return self._model.generate(
                    input_ids=ids.to(self._device),
                    attention_mask=mask.to(self._device),
                    generation_config=self._config,
                    **how,
                )
            except torch.OutOfMemoryError as err:
                raise ConfigError(
                    f"{len(ids)} prompts of {ids.shape[1]} tokens with {self._config.max_new_tokens} more do not fit: "
                    f"{err}. Ask fewer at a time, or lower --max_new_tokens or --num_beams"
                ) from err

    def _answer(self, prompt: Sequence[int], made: list[int]) -> Answer:
        # Rows of a batch that end early are filled up behind their end mark.
        places = [place for place, token in enumerate(made) if token in self._ends]
        new = made[: places[0] + 1] if places else made
        return Answer(
            text=self.text(new),
            with_prompt=self.text([*prompt, *new]),
            tokens=len(new),
            ended=bool(places),
        )


def make_config(flags: GenerationFlags, model: Any, tokenizer: Any) -> GenerationConfig:
    """The flags as transformers takes them. Nothing is left to the defaults that come with a model."""
    ends = _ends(model, tokenizer)
    chosen: dict[str, Any] = {
        "max_new_tokens": flags.max_new_tokens,
        "min_new_tokens": flags.min_new_tokens,
        "do_sample": flags.do_sample,
        "num_beams": flags.num_beams,
        "use_cache": flags.use_cache,
        "repetition_penalty": flags.repetition_penalty,
        "no_repeat_ngram_size": flags.no_repeat_ngram_size,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": ends,
        "pad_token_id": ends[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    }
    if flags.do_sample:
        chosen |= {
            "temperature": flags.temperature,
            "top_k": flags.top_k,
            "top_p": flags.top_p,
            "typical_p": flags.typical_p,
        }
    if flags.num_beams > 1:
        chosen["length_penalty"] = flags.length_penalty
    return GenerationConfig(**chosen)


def prepare(model: Any) -> None:
    """Make a loaded model ready to answer: no dropout, no checkpointing, and no defaults of its own.

    transformers fills what a configuration leaves open from the model's own; a chat model's says to sample.
    """
    model.eval()
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    own = inner.generation_config
    inner.generation_config = GenerationConfig(
        bos_token_id=own.bos_token_id, eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id
    )


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer: the tokenizer's end mark first, as training writes it, then the model's own."""
    own = model.generation_config.eos_token_id
    more = [] if own is None else [own] if isinstance(own, int) else list(own)
    return list(dict.fromkeys([tokenizer.eos_token_id, *more]))


class _Interrupt(StoppingCriteria):
    """Ends all rows of a batch as soon as its question says no."""

    def __init__(self, go_on: Callable[[], bool]) -> None:
        self._go_on = go_on

    def __call__(self, input_ids: Any, scores: Any, **unused: Any) -> Any:
        """One truth for each row, as transformers asks for it."""
        return torch.full((input_ids.shape[0],), not self._go_on(), dtype=torch.bool, device=input_ids.device)


class _Pieces(TextStreamer):
    """Hands on text as soon as it can no longer change; transformers decides when that is."""

    def __init__(self, tokenizer: Any, show: Callable[[str], None]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        self._show = show

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """See TextStreamer."""
        self._show(text)
