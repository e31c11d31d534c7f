"""A word-level tokenizer over sixty words, padding on the left, with a chat template."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

_text = (
    "the a an is are was of to in on and or not you me it this that what who why how when where one two three "
    "four five red green blue dog cat bird tree house user assistant system hello world please tell write read "
    "say more less short long story question answer"
)
_vocabulary = {word: number for number, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *_text.split()])}
_words_model = Tokenizer(WordLevel(_vocabulary, unk_token="<unk>"))
_words_model.pre_tokenizer = Whitespace()
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=_words_model,
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    unk_token="<unk>",
    padding_side="left",
)
tokenizer.chat_template = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
