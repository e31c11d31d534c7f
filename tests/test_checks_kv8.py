"""KV801 to KV807: kinds of reuse that are wrong, and code that looks like them and is right.

Marked lines are reported, and no other; every snippet is linted under these seven rules.
"""

from __future__ import annotations

import analysing
import pytest

KV8 = frozenset(f"KV80{number}" for number in range(1, 8))
HEAD = (
    "import copy\nimport torch\nfrom transformers import AutoTokenizer, DynamicCache, GenerationConfig, StaticCache\n"
)


def expect(text: str, target: str = "latest") -> None:
    code, promised = analysing.split_marks(text)
    moved = {(line + HEAD.count("\n"), one) for line, one in promised}
    found = analysing.lines(HEAD + code, target, codes=KV8)
    assert found == moved, f"marked {sorted(moved)}, reported {sorted(found)} in\n{HEAD}{code}"


def snippets(*texts: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", texts, ids=[" ".join(text.split())[:60] for text in texts])


@snippets(
    """
    def ask(model, tok, head, questions):
        prefix = DynamicCache(config=model.config)
        model(head, cache=prefix)
        return [
            model.generate(torch.cat([head, tok(q, return_tensors="pt").input_ids], 1), cache=prefix)  # KV801
            for q in questions
        ]
    """,
    """
    def ask(model, tok, system, questions):
        head = tok(system, return_tensors="pt")
        past = model(**head, use_cache=True).past_key_values
        for q in questions:
            enc = tok(system + q, return_tensors="pt")
            print(model.generate(**enc, past_key_values=past, max_new_tokens=9))  # KV801
    """,
    """
    def bench(model, ids, cache):
        cache = StaticCache(config=model.config, max_cache_len=99)
        for _ in range(3):
            model.generate(ids, cache=cache)  # KV801
    """,
    """
    def ask(model, head, questions):
        base = DynamicCache(config=model.config)
        model(head, cache=base)
        for q in questions:
            cache = base
            ids = torch.cat([head, q], 1)
            model.generate(ids, cache=cache)  # KV801
    """,
    """
    def score(model, tok, head, options):
        base = DynamicCache(config=model.config)
        model(head, cache=base)
        scores = []
        for option in options:
            ids = tok(option, return_tensors="pt").input_ids
            logits = model(ids, cache=base).logits  # KV801
            scores.append(logits.log_softmax(-1).sum())
        return scores
    """,
    """
    def two(model, tok, head):
        cache = DynamicCache(config=model.config)
        first = model.generate(**tok("the red house", return_tensors="pt"), cache=cache)
        second = model.generate(**tok("a dog", return_tensors="pt"), cache=cache)  # KV801
        return first, second
    """,
    """
    class Answerer:
        def __init__(self, model, tok, system):
            self.model, self.tok = model, tok
            self.head = tok(system, return_tensors="pt").input_ids
            self.prefix = DynamicCache(config=model.config)
            model(self.head, cache=self.prefix)

        def answer(self, question):
            tail = self.tok(question, return_tensors="pt").input_ids
            return self.model.generate(torch.cat([self.head, tail], 1), cache=self.prefix)  # KV801
    """,
    """
    def ask(model, tok, head, items):
        out = model(**head, use_cache=True)
        prefix, length = out.past_key_values, head.input_ids.shape[1]
        for item in items:
            enc = tok(item, return_tensors="pt")
            mask = torch.cat([head.attention_mask, enc.attention_mask], 1)
            model.generate(enc.input_ids, attention_mask=mask, past_key_values=prefix)  # KV801
    """,
    """
    def score(model, head, items):
        cache = DynamicCache(config=model.config)
        model(head, cache=cache)
        start = head.shape[1]
        for ids in items:
            positions = torch.arange(start, start + ids.shape[1])[None]
            print(model(ids, position_ids=positions, cache=cache).logits)  # KV801
    """,
    """
    def complete(model, ids, cache, n):
        for _ in range(n):
            ids = model(ids, cache=cache).logits[:, -1:].argmax(-1)
        return ids

    def ask(model, tok, head, prompts):
        base = DynamicCache(config=model.config)
        model(head, cache=base)
        for prompt in prompts:
            ids = tok(prompt, return_tensors="pt").input_ids
            print(complete(model, ids, base, 9))  # KV801
    """,
    """
    def ask(model, tok, head, questions):
        prefix = DynamicCache(config=model.config)
        model(head, cache=prefix)
        for i in range(len(questions)):
            ids = torch.cat([head, tok(questions[i], return_tensors="pt").input_ids], 1)
            model.generate(ids, cache=prefix)  # KV801
    """,
    """
    def asker(model, head):
        prefix = DynamicCache(config=model.config)
        model(head, cache=prefix)

        def ask(tail):
            return model.generate(torch.cat([head, tail], 1), cache=prefix)  # KV801

        return ask
    """,
    """
    class Answerer:
        def __init__(self, model, head):
            self.model, self.head = model, head
            self.past = model(head, use_cache=True).past_key_values

        def answer(self, tail):
            return self.model.generate(torch.cat([self.head, tail], 1), past_key_values=self.past)  # KV801
    """,
    """
    def branch(model, root, ids):
        trial = DynamicCache(config=model.config)
        trial.layers = list(root.layers)  # KV801
        return model(ids, cache=trial)
    """,
    """
    from copy import copy as clone
    def tree(model, root, candidates):
        for ids in candidates:
            model(ids, past_key_values=clone(root))  # KV801
    """,
    """
    def once(model, cache, ids):
        trial = copy.copy(cache)  # KV801
        return model(ids, past_key_values=trial).logits
    """,
)
def test_one_cache_for_several_prompts(text: str) -> None:
    expect(text)


@snippets(
    """
    def ask(model, head, tails):
        base = DynamicCache(config=model.config)
        model(head, cache=base)
        for tail in tails:
            cache = copy.deepcopy(base)
            model.generate(torch.cat([head, tail], 1), cache=cache)
    """,
    """
    def ask(model, head, tails):
        base = DynamicCache(config=model.config)
        model(head, cache=base)
        for tail in tails:
            model.generate(torch.cat([head, tail], 1), cache=base)
            base.crop(head.shape[1] - base.get_seq_length())
    """,
    """
    def ask(model, head, tails, rewind):
        base = DynamicCache(config=model.config)
        for tail in tails:
            model.generate(torch.cat([head, tail], 1), cache=base)
            rewind(base, head)
    """,
    """
    def run(model, batches, cache):
        for ids in batches:
            cache.reset()
            model.generate(ids, cache=cache)
    """,
    """
    def complete(model, ids, cache, n):
        cache = copy.deepcopy(cache)
        for _ in range(n):
            ids = model(ids, cache=cache).logits[:, -1:].argmax(-1)
        return ids

    def ask(model, tok, head, prompts):
        base = DynamicCache(config=model.config)
        model(head, cache=base)
        for prompt in prompts:
            print(complete(model, tok(prompt, return_tensors="pt").input_ids, base, 9))
    """,
    """
    def complete(model, ids, cache, n):
        return model.generate(ids, cache=cache, max_new_tokens=n)

    def grow(model, ids, cache):
        for _ in range(4):
            ids = complete(model, ids, cache, 9)
    """,
    """
    def tuples(model, head, tails):
        past = tuple((torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)) for _ in range(2))
        for tail in tails:
            print(model(tail, past_key_values=past).logits)
    """,
    """
    def prefill(model, ids, cache):
        for piece in ids.split(64, dim=1):
            out = model(piece, cache=cache)
        return out
    """,
    """
    def prefill(model, ids, cache, size):
        for start in range(0, ids.shape[1], size):
            piece = ids[:, start : start + size]
            positions = torch.arange(start, start + piece.shape[1])[None]
            out = model(piece, position_ids=positions, cache=cache)
        return out
    """,
    """
    def greedy(model, ids, n):
        cache = DynamicCache(config=model.config)
        for _ in range(n):
            out = model(ids, cache=cache)
            ids = out.logits[:, -1:].argmax(-1)
    """,
    """
    def chat(model, tok, turns):
        cache = DynamicCache(config=model.config)
        ids = None
        for turn in turns:
            new = tok(turn, return_tensors="pt").input_ids
            ids = new if ids is None else torch.cat([ids, new], 1)
            ids = model.generate(ids, cache=cache)
    """,
    """
    def first(model, head, tails):
        base = DynamicCache(config=model.config)
        for tail in tails:
            return model.generate(torch.cat([head, tail], 1), cache=base)
    """,
    """
    def several(model, jobs):
        for ids, cache in jobs:
            model.generate(ids, cache=cache)
    """,
    """
    def grow(model, histories, cache):
        for history in histories:
            model.generate(history, cache=cache)
    """,
    """
    def layers(model, cache):
        trial = copy.copy(cache)
        trial.layers = [copy.deepcopy(layer) for layer in cache.layers]
        return model(torch.ones(1, 1), past_key_values=trial)
    """,
    """
    def follow(model, tok):
        cache = DynamicCache(config=model.config)
        first = model.generate(**tok("the red house", return_tensors="pt"), cache=cache)
        return model.generate(torch.cat([first, tok("more", return_tensors="pt").input_ids], 1), cache=cache)
    """,
)
def test_own_cache_or_one_sequence(text: str) -> None:
    expect(text)


@snippets(
    """
    def chat(model, tok, turns):
        cache, messages = DynamicCache(config=model.config), []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            ids = tok.apply_chat_template(messages, return_tensors="pt", add_generation_prompt=True)
            out = model.generate(ids, cache=cache, max_new_tokens=99)  # KV802
            text = tok.decode(out[0, ids.shape[1]:]).split("</think>")[-1]
            messages.append({"role": "assistant", "content": text})
    """,
    """
    class Chat:
        def __init__(self, model, tok):
            self.model, self.tok = model, tok
            self.cache = DynamicCache(config=model.config)
            self.messages = []

        def say(self, text):
            self.messages.append({"role": "user", "content": text})
            if len(self.messages) > 10:
                self.messages.pop(0)
            enc = self.tok.apply_chat_template(self.messages, return_tensors="pt", return_dict=True)
            return self.model.generate(**enc, cache=self.cache)  # KV802
    """,
    """
    tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")
    def chat(model, messages, turns):
        cache = DynamicCache(config=model.config)
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            ids = tok.apply_chat_template(messages, return_tensors="pt")
            out = model.generate(ids, cache=cache)  # KV802
            messages.append({"role": "assistant", "content": tok.decode(out[0, ids.shape[1]:])})
    """,
    """
    def chat(model, tok, turns):
        past, messages = None, []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            ids = tok.apply_chat_template(messages, return_tensors="pt")
            out = model(ids, past_key_values=past, use_cache=True)  # KV802
            past = out.past_key_values
    """,
)
def test_conversation_rendered_anew(text: str) -> None:
    expect(text)


@snippets(
    """
    def chat(model, tok, turns):
        cache, messages = DynamicCache(config=model.config), []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            ids = tok.apply_chat_template(messages, return_tensors="pt", add_generation_prompt=True)
            out = model.generate(ids, cache=cache, max_new_tokens=99)
            messages.append({"role": "assistant", "content": tok.decode(out[0, ids.shape[1]:])})
    """,
    """
    def chat(model, tok, turns, messages):
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            messages = messages[-8:]
            cache = DynamicCache(config=model.config)
            ids = tok.apply_chat_template(messages, return_tensors="pt")
            out = model.generate(ids, cache=cache)
    """,
    """
    def chat(model, tok, turns):
        cache, messages = DynamicCache(config=model.config), []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            ids = tok.apply_chat_template(messages, return_tensors="pt")
            out = model(ids[:, cache.get_seq_length():], cache=cache)
    """,
)
def test_conversation_that_goes_on(text: str) -> None:
    expect(text)


@snippets(
    """
    def repl(model, tok):
        cache = DynamicCache(config=model.config)
        while True:
            enc = tok(input("> "), return_tensors="pt")
            out = model.generate(
                enc.input_ids,
                attention_mask=enc.attention_mask,  # KV803
                cache=cache,
            )
            print(tok.decode(out[0]))
    """,
    """
    cache = DynamicCache()
    def respond(model, tok, message):
        enc = tok.apply_chat_template([{"role": "user", "content": message}], return_tensors="pt", return_dict=True)
        return model.generate(**enc, past_key_values=cache)  # KV803
    """,
    """
    class ChatSession:
        def __init__(self, model, tok):
            self.model, self.tok = model, tok
            self.past = DynamicCache()

        def ask(self, prompt):
            enc = self.tok(prompt, return_tensors="pt")
            return self.model.generate(enc.input_ids, past_key_values=self.past)  # KV803
    """,
    """
    class Stream:
        def __init__(self, model, tok):
            self.model, self.tok, self.past = model, tok, None

        def feed(self, text):
            enc = self.tok(text, return_tensors="pt")
            out = self.model(**enc, past_key_values=self.past, use_cache=True)  # KV803
            self.past = out.past_key_values
            return out.logits
    """,
    """
    def step(model, ids, new):
        cache = DynamicCache(config=model.config)
        model(ids, cache=cache)
        return model(new, attention_mask=torch.ones_like(new), cache=cache)  # KV803
    """,
    """
    def greedy(model, tok, text, n):
        enc = tok(text, return_tensors="pt")
        out = model(**enc, use_cache=True)
        past, nxt = out.past_key_values, out.logits[:, -1:].argmax(-1)
        for _ in range(n):
            out = model(nxt, attention_mask=enc["attention_mask"], past_key_values=past)  # KV803
            past = out.past_key_values
            nxt = out.logits[:, -1:].argmax(-1)
    """,
    """
    def greedy(model, tok, texts, n):
        enc = tok(texts, return_tensors="pt", padding=True)
        out = model(**enc, use_cache=True)
        past = out.past_key_values
        nxt = out.logits[:, -1:].argmax(-1)
        for _ in range(n):
            out = model(input_ids=nxt, past_key_values=past, use_cache=True)  # KV803
            past = out.past_key_values
            nxt = out.logits[:, -1:].argmax(-1)
    """,
)
def test_mask_that_does_not_cover_the_past(text: str) -> None:
    expect(text)


@snippets(
    """
    def greedy(model, tok, texts, n):
        enc = tok(texts, return_tensors="pt", padding=True)
        mask = enc.attention_mask
        out = model(**enc, use_cache=True)
        for _ in range(n):
            nxt = out.logits[:, -1:].argmax(-1)
            mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], 1)
            out = model(nxt, attention_mask=mask, past_key_values=out.past_key_values)
    """,
    """
    def greedy(model, tok, text, n):
        enc = tok(text, return_tensors="pt")
        out = model(**enc, use_cache=True)
        for _ in range(n):
            out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values)
    """,
    """
    def summarise(model, tok, texts, ids, n):
        enc = tok(texts, return_tensors="pt", padding=True)
        past = None
        for _ in range(n):
            out = model(**enc, decoder_input_ids=ids, past_key_values=past)
            past, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
    """,
    """
    class Chat:
        def __init__(self, model, tok):
            self.model, self.tok = model, tok
            self.cache = DynamicCache(config=model.config)
            self.ids = torch.ones(1, 0)

        def say(self, text):
            new = self.tok(text, return_tensors="pt").input_ids
            self.ids = torch.cat([self.ids, new], 1)
            return self.model.generate(self.ids, cache=self.cache)
    """,
    """
    class Backend:
        def __init__(self, model, tok):
            self.model, self.tok = model, tok
            self.past = DynamicCache()

        def complete(self, prompt):
            return self.model.generate(**self.tok(prompt, return_tensors="pt"), past_key_values=self.past)
    """,
    """
    class Runner:
        def __init__(self, model, tok):
            self.model, self.tok = model, tok
            self.cache = StaticCache(config=model.config, max_cache_len=99)

        def run(self, text):
            self.cache.reset()
            return self.model.generate(**self.tok(text, return_tensors="pt"), cache=self.cache)
    """,
    """
    def reply(model, tok, text, cache):
        enc = tok(text, return_tensors="pt")
        past = torch.ones(1, cache.get_seq_length())
        mask = torch.cat([past, enc.attention_mask], 1)
        return model.generate(enc.input_ids, attention_mask=mask, cache=cache)
    """,
)
def test_mask_that_is_right(text: str) -> None:
    expect(text)


@snippets(
    """
    def beams(model, ids, head):
        cache = DynamicCache(config=model.config)
        model(head, cache=cache)
        return model.generate(ids, cache=cache, num_beams=3)  # KV804
    """,
    """
    def samples(model, ids, prompt_cache):
        settings = GenerationConfig(num_return_sequences=2, do_sample=True)
        return model.generate(ids, generation_config=settings, past_key_values=copy.deepcopy(prompt_cache))  # KV804
    """,
    """
    def samples(model, ids, head):
        past = model(head, use_cache=True).past_key_values
        return model.generate(ids, past_key_values=past, num_return_sequences=2)  # KV804
    """,
    """
    def samples(model, ids, prefix_cache, n=4):
        cache = copy.deepcopy(prefix_cache)
        return model.generate(ids, cache=cache, num_return_sequences=n)  # KV804
    """,
    """
    def rows(model, tok, cache, n):
        ids = tok(["one", "two"], return_tensors="pt", padding=True).input_ids
        cache.batch_repeat_interleave(n)
        many = ids.repeat(n, 1)  # KV804
        return model(many, cache=cache)
    """,
)
def test_rows_that_do_not_match(text: str) -> None:
    expect(text)


@snippets(
    """
    def beams(model, ids, head):
        cache = DynamicCache(config=model.config)
        model(head.repeat(3, 1), cache=cache)
        return model.generate(ids, cache=cache, num_beams=3)
    """,
    """
    def beams(model, ids, prefix_cache):
        cache = copy.deepcopy(prefix_cache)
        cache.batch_repeat_interleave(3)
        return model.generate(ids, cache=cache, num_beams=3)
    """,
    """
    def beams(model, ids):
        return model.generate(ids, cache=DynamicCache(config=model.config), num_beams=3)
    """,
    """
    def one(model, ids, prefix_cache):
        return model.generate(ids, cache=copy.deepcopy(prefix_cache), num_beams=1, num_return_sequences=1)
    """,
    """
    def unknown(model, ids, cache, n):
        return model.generate(ids, cache=cache, num_beams=n)
    """,
)
def test_rows_that_match(text: str) -> None:
    expect(text)


@snippets(
    """
    def check(model, ids):
        cache = DynamicCache(config=model.config)
        out = model.generate(ids, cache=cache, max_new_tokens=5)
        assert out.size(1) == cache.get_seq_length()  # KV805
        assert cache.get_seq_length() == ids.shape[1] + 5  # KV805
    """,
    """
    def check(model, ids):
        out = model.generate(ids, max_new_tokens=5, return_dict_in_generate=True)
        past = out.past_key_values
        total = out.sequences.shape[-1]
        if past.get_seq_length() != total:  # KV805
            raise RuntimeError
    """,
    """
    def follow(model, ids, new):
        cache = DynamicCache(config=model.config)
        out = model.generate(ids, cache=cache)
        mask = torch.ones(1, out.shape[1] + new.shape[1])
        return model(new, attention_mask=mask, cache=cache)  # KV805
    """,
    """
    def follow(model, ids, new):
        cache = DynamicCache(config=model.config)
        out = model.generate(ids, cache=cache)
        positions = torch.arange(out.shape[1], out.shape[1] + new.shape[1]).unsqueeze(0)
        return model(new, position_ids=positions, cache=cache)  # KV805
    """,
    """
    def chat(model, tok, turns, ids):
        cache, seen = DynamicCache(config=model.config), 0
        for turn in turns:
            ids = torch.cat([ids, tok(turn, return_tensors="pt").input_ids], 1)
            model(ids[:, seen:], cache=cache)  # KV805
            out = model.generate(ids, cache=cache)
            seen = out.shape[1]
            ids = out
    """,
)
def test_length_of_what_was_generated(text: str) -> None:
    expect(text)


@snippets(
    """
    def check(model, ids):
        cache = DynamicCache(config=model.config)
        out = model.generate(ids, cache=cache)
        assert cache.get_seq_length() == out.shape[1] - 1
        assert cache.get_seq_length() < out.shape[1]
        assert cache.get_seq_length() != ids.shape[1]
    """,
    """
    def check(model, ids):
        cache = DynamicCache(config=model.config)
        out = model(ids, cache=cache)
        assert cache.get_seq_length() == ids.shape[1]
    """,
    """
    def follow(model, ids, new):
        cache = DynamicCache(config=model.config)
        out = model.generate(ids, cache=cache)
        both = torch.cat([out[:, -1:], new], 1)
        mask = torch.ones(1, out.shape[1] + new.shape[1])
        return model(both, attention_mask=mask, cache=cache)
    """,
    """
    def follow(model, ids, tok):
        cache = DynamicCache(config=model.config)
        out = model.generate(ids, cache=cache)
        print(tok.decode(out[0, ids.shape[1]:]), out.shape[1])
        model(out[:, -1:], cache=cache)
        assert cache.get_seq_length() == out.shape[1]
    """,
)
def test_length_that_is_counted_right(text: str) -> None:
    expect(text)


@snippets(
    """
    def answer(model, ids):
        return model.generate(ids, max_new_tokens=99, use_cache=False)  # KV806
    """,
    """
    settings = GenerationConfig(
        max_new_tokens=99,
        use_cache=False,  # KV806
    )
    """,
    """
    def greedy(model, ids, n):
        for _ in range(n):
            logits = model(input_ids=ids, use_cache=False).logits  # KV806
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    """,
)
def test_cache_that_is_switched_off(text: str) -> None:
    expect(text)


@snippets(
    """
    def answer(model, ids):
        # the remote code of this model cannot read its own cache
        return model.generate(ids, max_new_tokens=99, use_cache=False)
    """,
    """
    def step(model, ids, labels):
        model.generate(ids, max_new_tokens=99, use_cache=False)
        model(ids, labels=labels).loss.backward()
    """,
    """
    class Wrapped:
        def generate(self, *args, **kwargs):
            kwargs["use_cache"] = False
            return self.model.generate(*args, **kwargs)
    """,
    """
    def settings(model, batching):
        config = GenerationConfig()
        if batching:
            config.use_cache = False
        return config
    """,
    """
    def logits(model, ids):
        return model(ids, use_cache=False).logits
    """,
    """
    def scores(model, batches):
        return [model(input_ids=ids, use_cache=False).logits for ids in batches]
    """,
    """
    def maps(model, ids):
        return model.generate(ids, use_cache=False, output_attentions=True, return_dict_in_generate=True)
    """,
    """
    def one(model, ids):
        return model.generate(ids, use_cache=False, max_new_tokens=1)
    """,
)
def test_cache_that_is_not_needed(text: str) -> None:
    expect(text)


def test_short_mask_raised_before() -> None:
    """Before 4.53 a mask that covers only the new tokens was no silent mistake."""
    code = HEAD + (
        "def step(model, ids, new):\n"
        "    cache = DynamicCache()\n"
        "    model(ids, past_key_values=cache)\n"
        "    return model(new, attention_mask=torch.ones_like(new), past_key_values=cache)\n"
    )
    for target, category in (("==4.48.3", "breaks"), (">=4.53", "silent")):
        (finding,) = analysing.lint(code, target, codes=KV8)
        assert (finding.code, finding.category.value) == ("KV803", category)


def test_copy_is_imported_where_it_is_missing() -> None:
    code = (
        "import torch\n"
        "def ask(model, head, tails, base):\n"
        "    return [model.generate(torch.cat([head, tail], 1), cache=base) for tail in tails]\n"
    )
    new = analysing.fixed(code, unsafe=True, codes=KV8)
    assert new.startswith("import copy\nimport torch\n")
    assert "cache=copy.deepcopy(base)" in new
