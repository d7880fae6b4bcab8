"""Makes a Llama of two layers with random weights and a tokenizer of characters: `python tiny_model.py FOLDER`.

Enough for a pipeline to see a run from its flags to its checkpoint in seconds, without a GPU or a download.
"""

import string
import sys

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MARKS = ("<unk>", "<s>", "</s>")


def main(folder: str) -> None:
    """Write model and tokenizer into `folder`."""
    vocabulary = {token: place for place, token in enumerate((*MARKS, *string.printable))}
    characters = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = Split(Regex("."), "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=characters, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
