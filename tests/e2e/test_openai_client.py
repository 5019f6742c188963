"""Talks to a running server through the real openai package.

usage: test_openai_client.py BASE_URL     (for example http://127.0.0.1:8000/v1)

Prints one PASS or FAIL line per check; exits 1 if any failed. Checks only what holds for every
model: shapes, counts and errors, never the wording of an answer.
"""

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import openai

QUESTION = [{"role": "user", "content": "Name a colour."}]


def text_of(message):
    reasoning = getattr(message, "reasoning_content", None) or ""
    return reasoning + (message.content or "")


def check_models(client, model):
    names = [entry.id for entry in client.models.list()]
    assert model in names, names
    assert client.models.retrieve(model).object == "model"


def check_chat(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=16, seed=1)
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 16
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def check_chat_stream_equals_whole(client, model):
    fields = dict(model=model, messages=QUESTION, max_tokens=24, temperature=0, seed=1)
    whole = client.chat.completions.create(**fields)
    text, reason, usage = "", None, None
    stream = client.chat.completions.create(
        **fields, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        if chunk.usage is not None:
            assert chunk.choices == []
            usage = chunk.usage
            continue
        text += text_of(chunk.choices[0].delta)
        reason = chunk.choices[0].finish_reason or reason
    assert text == text_of(whole.choices[0].message), (text, whole.choices[0].message)
    assert reason == whole.choices[0].finish_reason
    assert usage is not None and usage.completion_tokens == whole.usage.completion_tokens


def check_completion(client, model):
    answer = client.completions.create(
        model=model, prompt="Once upon", max_tokens=8, temperature=0
    )
    assert answer.object == "text_completion"
    assert answer.usage.completion_tokens <= 8
    chunks = client.completions.create(
        model=model, prompt="Once upon", max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def check_completion_batch(client, model):
    answer = client.completions.create(model=model, prompt=["a", "b"], n=2, max_tokens=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


def check_parallel_chats(client, model):
    def one(_):
        return client.chat.completions.create(
            model=model, messages=QUESTION, max_tokens=8, temperature=0
        )

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(8)))
    texts = {text_of(answer.choices[0].message) for answer in answers}
    assert len(texts) == 1, f"greedy answers differ between neighbours: {texts}"


def check_max_tokens(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=3, extra_body={"ignore_eos": True}
    )
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def check_stop(client, model):
    fields = dict(model=model, prompt="Count: 1 2 3", temperature=0, max_tokens=24)
    fields["extra_body"] = {"ignore_eos": True}
    full = client.completions.create(**fields).choices[0].text
    assert len(full) >= 4, f"too short to cut: {full!r}"
    stop = full[2:4]
    cut = client.completions.create(**fields, stop=[stop]).choices[0]
    assert cut.text == full[: full.index(stop)], (full, stop, cut.text)
    assert cut.finish_reason == "stop"
    chunks = client.completions.create(**fields, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == cut.text


def expect(error, call):
    try:
        call()
    except error as caught:
        assert caught.body.get("message"), caught.body
        return caught
    raise AssertionError(f"no {error.__name__}")


def check_errors(client, model):
    create = client.chat.completions.create
    caught = expect(
        openai.BadRequestError, lambda: create(model=model, messages=QUESTION, temperature=-1)
    )
    assert caught.param == "temperature", caught.body
    expect(openai.BadRequestError, lambda: create(model=model, messages=[]))
    caught = expect(openai.NotFoundError, lambda: create(model="no-such", messages=QUESTION))
    assert caught.code == "model_not_found", caught.body
    expect(openai.NotFoundError, lambda: client.models.retrieve("no-such"))
    limit = next(iter(client.models.list())).max_model_len
    caught = expect(
        openai.BadRequestError,
        lambda: client.completions.create(model=model, prompt=[1] * (limit + 1), max_tokens=1),
    )
    assert caught.code == "context_length_exceeded", caught.body


CHECKS = [
    check_models,
    check_chat,
    check_chat_stream_equals_whole,
    check_completion,
    check_completion_batch,
    check_parallel_chats,
    check_max_tokens,
    check_stop,
    check_errors,
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=300)
    model = next(iter(client.models.list())).id
    failed = 0
    for check in CHECKS:
        try:
            check(client, model)
            print("PASS", check.__name__, flush=True)
        except Exception:
            failed += 1
            print("FAIL", check.__name__, flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
