"""The endpoint against programs of every kind: what it answers, what it refuses, and what it survives."""

import base64
import http.client
import io
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import PIL.Image
import pytest

from starpo.ragen.agents.vision.image_tokens import MARK, REPLACEMENT
from starpo.ragen.methods.programs import album
from starpo.ragen.methods.programs import endpoint as served
from starpo.ragen.methods.programs.album import Album
from starpo.ragen.methods.programs.chat import Call, ChatMessage, Refusal, Requirement, RunSampling
from starpo.ragen.methods.programs.endpoint import Endpoint
from starpo.ragen.methods.programs.replies import Reply
from starpo.ragen.methods.programs.requests import read_request
from starpo.ragen.methods.programs.responses import as_chat

AGREEING = RunSampling(0.7, 1.0, must_agree=True)
HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
BROKEN = {"function": {"name": "f", "arguments": "["}}
TOOL = {"type": "function", "function": {"name": "search"}}
CALL = ChatMessage("assistant", "", (Call("search", '{"query": "x"}', id="c00000000"),))


def data_url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def shown(url: str) -> dict:
    return {"type": "image_url", "image_url": {"url": url}}


@contextmanager
def answering(say=lambda call: ChatMessage("assistant", f"{call.trajectory_id} heard")) -> Iterator[Endpoint]:
    """An endpoint whose player answers every call at once."""
    is_over = threading.Event()

    def serve(endpoint: Endpoint) -> None:
        while not is_over.is_set():
            for call in endpoint.calls(0.01):
                message = say(call)
                reason = "tool_calls" if message.calls else "stop"
                call.answer(Reply("chatcmpl-1", message, reason, 3, 2))

    with Endpoint() as endpoint:
        thread = threading.Thread(target=serve, args=(endpoint,))
        thread.start()
        try:
            yield endpoint
        finally:
            is_over.set()
            thread.join()


def address(endpoint: Endpoint) -> tuple[str, int]:
    host, port = endpoint.url.removeprefix("http://").removesuffix("/v1").split(":")
    return host, int(port)


def post(endpoint: Endpoint, key: str, body: object, path: str = "/v1/chat/completions") -> tuple[int, dict]:
    connection = http.client.HTTPConnection(*address(endpoint), timeout=20)
    payload = body if isinstance(body, bytes) else json.dumps(body)
    connection.request("POST", path, payload, {"Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def head(key: str, num_bytes: int) -> bytes:
    """Headers of a request with a body of that size."""
    lines = ("POST /v1/chat/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, f"Content-Length: {num_bytes}", "", ""]).encode()


def test_openai_client_answered_whole_and_streamed():
    from openai import OpenAI

    with answering(lambda call: CALL if call.request.tools != "[]" else ChatMessage("assistant", "hi\n")) as endpoint:
        client = OpenAI(base_url=endpoint.url, api_key=endpoint.admit("t"))
        assert [model.id for model in client.models.list()] == ["policy"]
        options = {"model": "policy", "messages": HELLO["messages"]}
        whole = client.chat.completions.create(**options)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("hi\n", "stop")
        assert whole.usage.total_tokens == 5
        events = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
        assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == "hi\n"
        assert events[-1].usage.completion_tokens == 2
        called = client.chat.completions.create(**options, tools=[TOOL]).choices[0]
        assert (called.finish_reason, called.message.content) == ("tool_calls", None)
        assert called.message.tool_calls[0].function.name == "search"
        with client.chat.completions.stream(**options, tools=[TOOL]) as stream:
            assert stream.get_final_completion().choices[0].message.tool_calls[0].function.arguments == '{"query": "x"}'


def test_responses_protocol_equals_chat():
    openai = pytest.importorskip("openai")
    tool = {"name": "search", "description": "", "parameters": {"type": "object", "properties": {}}}
    requests = []

    def say(call):
        requests.append(call.request)
        return (
            ChatMessage("assistant", "let me see", CALL.calls) if len(requests) == 1 else ChatMessage("assistant", "x")
        )

    with answering(say) as endpoint:
        client = openai.OpenAI(base_url=endpoint.url, api_key=endpoint.admit("t1"))
        begun = [{"role": "user", "content": "hello"}]
        given = {"model": "policy", "instructions": "Play.", "tools": [{"type": "function", **tool}]}
        first = client.responses.create(input=begun, **given)
        result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "found"}
        later = [*begun, *(item.model_dump(exclude_none=True) for item in first.output), result]
        second = client.responses.create(input=later, **given)
    assert (first.output_text, first.output[1].name, first.output[1].arguments) == (
        "let me see", "search", CALL.calls[0].arguments
    )  # fmt: skip
    assert (second.output_text, second.status, second.usage.total_tokens) == ("x", "completed", 5)
    chat = {"model": "policy", "tools": [{"type": "function", "function": tool}], "messages": [
        {"role": "system", "content": "Play."}, begun[0],
        {"role": "assistant", "content": "let me see", "tool_calls": [
            {"function": {"name": "search", "arguments": CALL.calls[0].arguments}}
        ]},
        {"role": "tool", "content": "found"},
    ]}  # fmt: skip
    assert requests[1] == read_request(json.dumps(chat).encode(), RunSampling())


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"previous_response_id": "r1"}, "previous_response_id"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input"),
        ({"text": {"format": {"type": "grammar"}}}, "text"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"temperature": 0}, "temperature"),
    ],
)
def test_unservable_response_options_are_refused(changes, param):
    body = {"model": "policy", "input": "hello"} | changes
    with answering() as endpoint:
        status, answer = post(endpoint, endpoint.admit("t1", AGREEING), body, "/v1/responses")
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("changes", "param", "word"),
    [
        ({"model": "gpt-4o"}, "model", "'policy'"),
        ({"n": 8}, "n", "should be 1"),
        ({"logprobs": True, "top_logprobs": 5}, "top_logprobs", "should be 0"),
        ({"temperature": 0}, "temperature", "0.7"),
        ({"temperature": float("nan")}, "temperature", "0.7"),
        ({"temperature": "warm"}, "temperature", "valid number"),
        ({"top_p": 0.5}, "top_p", "top_p"),
        ({"presence_penalty": 0.5}, "presence_penalty", "not that of this run, 0"),
        ({"response_format": {"type": "grammar"}}, "response_format", r"response_format.type is 'grammar'"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "which holds the schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}}, "response_format", "an object"),
        ({"top_k": 5}, "top_k", "not that of this run"),
        ({"guided_json": "{}"}, "guided_json", "leave it out"),
        ({"max_tokens": 0}, "max_tokens", "greater than 0"),
        ({"stop": [1]}, "stop", "valid string"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages", "wizard"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages", "valid string"),
        ({"messages": [{"role": "user", "content": [shown("")]}]}, "messages", "takes no images"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "required"),
        ({"messages": [{"role": "user", "tool_calls": [{}]}]}, "messages", "required"),
        ({"messages": [{"role": "assistant", "tool_calls": [BROKEN]}]}, "messages", "JSON"),
        ({"tools": [{"type": "retrieval"}]}, "tools", "function"),
        ({"tools": [TOOL, TOOL]}, "tools", "two tools are named 'search'"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 7}}]}, "tools", "an object"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "name"),
        ({"tool_choice": "any"}, "tool_choice", "tool_choice is 'any'"),
        ({"tool_choice": "required"}, "tool_choice", "tools declared are: none"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "the tool f"),
    ],
)  # fmt: skip
def test_sampling_changes_and_non_text_refused(changes, param, word):
    with pytest.raises(Refusal, match=word) as refused:
        read_request(json.dumps(HELLO | changes).encode(), AGREEING)
    assert (refused.value.param, refused.value.status) == (param, 400)


SCHEMA = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
TOOL = {"type": "function", "function": {"name": "buy"}}


@pytest.mark.parametrize(
    ("changes", "requirement"),
    [
        ({"response_format": {"type": "text"}}, Requirement()),
        ({"response_format": {"type": "json_object"}}, Requirement(is_json=True)),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "p", "strict": True, "schema": SCHEMA},
                }
            },
            Requirement(is_json=True, schema=json.dumps(SCHEMA)),
        ),
        ({"tools": [TOOL], "tool_choice": "required"}, Requirement(tool="*")),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "buy"}}}, Requirement(tool="buy")),
    ],
)
def test_requirements_become_instructions(changes, requirement):
    request = read_request(json.dumps(HELLO | changes).encode(), AGREEING)
    assert request.requirement == requirement
    texts = [message["content"] for message in request.plain()]
    assert texts == [f"hello\n\n{requirement.instruction}" if requirement.instruction else "hello"]
    assert requirement.schema in texts[0]


@pytest.mark.parametrize(
    ("requirement", "content", "calls", "is_met"),
    [
        (Requirement(is_json=True), '{"price": 3}', (), True),
        (Requirement(is_json=True, schema=json.dumps(SCHEMA)), '{"cost": 3}', (), True),  # schemas are not evaluated
        (Requirement(is_json=True), "[3]", (), False),
        (Requirement(is_json=True), "```json\n{}\n```", (), False),
        (Requirement(is_json=True), "[" * 100_000, (), False),
        (Requirement(tool="*"), "", CALL.calls, True),
        (Requirement(tool="buy"), "", CALL.calls, False),
        (Requirement(tool="*"), "I will", (), False),
    ],
)
def test_requirement_is_met(requirement, content, calls, is_met):
    assert requirement.is_met(content, calls) is is_met


def test_sampling_settings_of_programs_are_counted():
    options = {"temperature": 0.2, "top_p": 1.0, "seed": 3, "presence_penalty": 0, "frequency_penalty": 1, "top_k": 5}
    request = read_request(json.dumps(HELLO | options).encode(), RunSampling(0.7, 1.0))
    assert request.overridden == ("temperature", "frequency_penalty", "top_k", "seed")
    with answering() as endpoint:
        key = endpoint.admit("t", RunSampling(0.7, 1.0))
        assert post(endpoint, key, HELLO | options)[0] == post(endpoint, key, HELLO)[0] == 200
        assert post(endpoint, key, HELLO | {"n": 2})[0] == 400
        requests = endpoint.retire(key)
    assert requests.overridden == dict.fromkeys(request.overridden, 1)
    assert (requests.num_refused, requests.refused) == (1, {"n is 2. Input should be 1": 1})
    (named,) = requests.named
    assert named.facts == {
        "request": 3, "endpoint": "POST /v1/chat/completions", "field": "n", "reason": "n is 2. Input should be 1",
        "body": json.dumps(HELLO | {"n": 2}),
    }  # fmt: skip


def test_structured_output_equal_in_both_protocols():
    chat = HELLO | {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "buy"}},
    }
    responses = {"model": "policy", "input": "hello", "tools": [{"type": "function", "name": "buy"}]}
    responses |= {"tool_choice": {"type": "function", "name": "buy"}}
    form = {"type": "json_schema", "name": "p", "strict": True, "schema": SCHEMA}
    pairs = [
        (chat, responses),
        (
            HELLO | {"response_format": {"type": "json_schema", "json_schema": form}},
            {"model": "policy", "input": "hello", "text": {"format": form, "verbosity": "low"}},
        ),
    ]
    for in_chat, in_responses in pairs:
        body = as_chat(json.dumps(in_responses).encode())
        assert read_request(body, AGREEING) == read_request(json.dumps(in_chat).encode(), AGREEING)


def test_streamed_response_read_by_client():
    openai = pytest.importorskip("openai")
    say = {"text": ChatMessage("assistant", "well"), "call": CALL}
    with answering(lambda call: say[call.request.messages[0].content]) as endpoint:
        client = openai.OpenAI(base_url=endpoint.url, api_key=endpoint.admit("t"))
        for name, message in say.items():
            with client.responses.stream(model="policy", input=name) as stream:
                kinds = [event.type for event in stream]
                final = stream.get_final_response()
            assert kinds[0] == "response.created"
            assert kinds[-1] == "response.completed"
            assert final.output_text == message.content
            assert [(item.name, item.arguments) for item in final.output if item.type == "function_call"] == [
                (call.name, call.arguments) for call in message.calls
            ]


LONG_CALL = {"function": {"name": "f", "arguments": json.dumps([1] * 900_000)}}


def hostile(content: str = "1", more: str = "") -> bytes:
    return f'{{"model": "policy", "messages": [{{"role": "user", "content": {content}}}]{more}}}'.encode()


@pytest.mark.parametrize(
    "body",
    [
        hostile("[" + "1," * 1_999_999 + "1]"),
        hostile('"a"', ', "metadata": {' + ",".join(f'"k{n}":1' for n in range(200_000)) + "}"),
        hostile('"a"', "," + ",".join(f'"k{n}":1' for n in range(200_000))),
        b"[" + b'"",' * 1_300_000 + b"1]",
        b'"' + b'\\"' * 2_000_000,
        hostile('[{"type":"text","text":""}' * 20_000),
        b'{"model":"policy","messages":[' + b",".join([b'{"role":"user"}'] * 20_000) + b"]}",
        json.dumps(HELLO | {"messages": [{"role": "assistant", "tool_calls": [LONG_CALL]}]}).encode(),
    ],
    ids=["values", "keys", "parameters", "strings", "unclosed", "parts", "messages", "arguments"],
)  # fmt: skip
def test_hostile_bodies_refused_before_memory(body):
    tracemalloc.start()
    with pytest.raises(Refusal):
        read_request(body, RunSampling())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_byte_by_byte_body_refused():
    with answering() as endpoint:
        key = endpoint.admit("t")
        lines = ("POST /v1/chat/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {key}")
        head = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode()
        for num_chunks, status in ((1_000, b"200"), (300_000, b"413")):
            body = json.dumps(HELLO).encode()
            body += b" " * (num_chunks - len(body))
            with socket.create_connection(address(endpoint), timeout=20) as connection, suppress(ConnectionError):
                with suppress(ConnectionError):
                    connection.sendall(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
                assert connection.recv(100).split()[1] == status
        assert "2,000 chunks" in next(iter(endpoint.retire(key).refused))


def test_nothing_read_after_many_refusals(monkeypatch):
    monkeypatch.setattr(served, "MAX_REFUSED", 3)
    with answering() as endpoint:
        key = endpoint.admit("t")
        assert [post(endpoint, key, b"{")[0] for _ in range(5)] == [400, 400, 400, 429, 429]
        assert post(endpoint, key, HELLO)[0] == 429
        assert endpoint.num_refused(key) == 3


def png(mode="RGB", size=(32, 64), **saved) -> bytes:
    file = io.BytesIO()
    PIL.Image.new(mode, size, 7).save(file, "PNG", **saved)
    return file.getvalue()


PNG = png()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://example.org/a.png", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        (data_url(PNG).replace("png", "jpeg"), "PNG alone"),
        ("data:image/png;base64,%%%", "base64|Base64"),
        (data_url(b"GIF89a"), "does not begin as a PNG"),
        (data_url(PNG[: len(PNG) // 2]), "damaged or truncated"),
        (data_url(png("RGBA")), "mode RGBA"),
        (data_url(png("P", (1 << 13, 1 << 13), bits=1)), "expected 1 to"),
    ],
)
def test_non_image_is_one_refusal(url, word):
    body = HELLO | {"messages": [{"role": "user", "content": [shown(url)]}]}
    with pytest.raises(Refusal, match=word) as refused:
        read_request(json.dumps(body).encode(), RunSampling(), Album())
    assert (refused.value.param, refused.value.status) == ("messages", 400)
    assert str(refused.value).startswith("messages.0.content.0")


def test_images_decoded_once_within_pixel_limit(monkeypatch):
    monkeypatch.setattr(album, "MAX_PIXELS", 3 * 32 * 64)
    mine = Album()

    def ask(*urls):
        content = [{"type": "text", "text": f"a{MARK}"}, *map(shown, urls)]
        body = HELLO | {"messages": [{"role": "user", "content": content}]}
        return read_request(json.dumps(body).encode(), RunSampling(), mine).messages[0]

    first = ask(data_url(PNG), data_url(PNG))
    assert first.content == f"a{REPLACEMENT}{MARK}{MARK}"
    assert first.images[0] is first.images[1] is ask(data_url(PNG)).images[0]
    assert (first.images[0].height, first.images[0].width) == (64, 32)
    assert ask(data_url(png(size=(64, 64)))).images != ask(data_url(PNG)).images
    with pytest.raises(Refusal, match="more than 6,144 pixels together"):
        ask(data_url(png(size=(32, 32))))


def test_image_equal_in_both_protocols():
    requests = []
    with answering(lambda call: requests.append(call.request) or ChatMessage("assistant", "")) as endpoint:
        key = endpoint.admit("t", takes_images=True)
        chat = HELLO | {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, shown(data_url(PNG))]}]
        }
        assert post(endpoint, key, chat)[0] == 200
        parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": data_url(PNG)}]
        given = {"model": "policy", "input": [{"role": "user", "content": parts}]}
        assert post(endpoint, key, given, "/v1/responses")[0] == 200
        chat["messages"][0]["role"] = "assistant"
        assert post(endpoint, key, chat)[0] == 400
        assert post(endpoint, endpoint.admit("blind"), given, "/v1/responses")[0] == 400
    assert requests[0] == requests[1]
    assert len(requests[0].messages[0].images) == 1


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"model": "policy", "messages": ["\\ud800"]}']
)
def test_invalid_request_is_refused(body):
    with pytest.raises(Refusal):
        read_request(body, RunSampling())


def test_harmless_parameters_and_nulls_are_accepted():
    body = HELLO | {"user": "me", "seed": 3, "n": 1, "temperature": 0.7, "logprobs": None, "max_completion_tokens": 9}
    body |= {
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    }
    request = read_request(json.dumps(body).encode(), AGREEING)
    assert request.messages == (ChatMessage("system", "ab"),)
    assert request.max_tokens == 9


def test_key_opens_only_its_trajectory():
    with answering() as endpoint:
        keys = {name: endpoint.admit(name) for name in ("left", "right")}
        for name, key in keys.items():
            assert post(endpoint, key, HELLO)[1]["choices"][0]["message"]["content"] == f"{name} heard"
        endpoint.retire(keys["left"])
        for forged in (keys["left"], "", keys["right"][:-1], keys["right"] + "x", "Bearer", "\xff"):
            status, body = post(endpoint, forged, HELLO)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert post(endpoint, keys["right"], HELLO)[0] == 200
        assert post(endpoint, keys["right"], HELLO, "/v1/../admin")[0] == 404


def test_huge_body_refused_early():
    with answering() as endpoint:
        key = endpoint.admit("t")
        sent = 0
        with socket.create_connection(address(endpoint), timeout=20) as sender, suppress(OSError):
            sender.sendall(head(key, 100 << 20))
            while sent < 100 << 20:  # until it is reset
                sent += sender.send(b" " * (1 << 16))
        assert sent < 20 << 20
        assert post(endpoint, key, b" " * (served.MAX_BODY_BYTES - 100) + json.dumps(HELLO).encode())[0] in (200, 413)
        assert post(endpoint, key, HELLO)[0] == 200


@pytest.mark.ci
def test_slow_senders_are_ended(monkeypatch):
    monkeypatch.setattr(served, "SENDING_S", 0.3)
    with answering() as endpoint:
        key = endpoint.admit("t")
        for start in (b"", b"POST /v1/chat", f"POST /v1/models HTTP/1.1\r\nAuthorization: Bearer {key}\r\n".encode()):
            with socket.create_connection(address(endpoint), timeout=20) as slow:
                slow.sendall(start)
                began = time.monotonic()
                assert slow.recv(100) == b""
                assert time.monotonic() - began < 5
        with socket.create_connection(address(endpoint), timeout=20) as slow:
            slow.sendall(head(key, 9) + b"{")
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.ci
def test_many_connections_do_not_block_others(monkeypatch):
    monkeypatch.setattr(served, "MAX_CONNECTIONS", 64)
    with answering() as endpoint:
        key = endpoint.admit("t")
        held = []
        try:
            for _ in range(1000):
                held.append(socket.create_connection(address(endpoint), timeout=20))
                if len(held) > 300:  # this process, too, has a limit of open files
                    held.pop(0).close()
            assert post(endpoint, key, HELLO)[0] == 200
        finally:
            for connection in held:
                connection.close()


def test_calls_in_progress_are_limited(monkeypatch):
    monkeypatch.setattr(served, "MAX_OPEN", 2)
    with Endpoint() as endpoint:
        key, other = endpoint.admit("t"), endpoint.admit("other")
        threads = [threading.Thread(target=post, args=(endpoint, key, HELLO)) for _ in range(2)]
        for thread in threads:
            thread.start()
        waiting = []
        while len(waiting) < 2:
            waiting += endpoint.calls(0.1)
        assert post(endpoint, key, HELLO)[0] == 429
        threads.append(threading.Thread(target=post, args=(endpoint, other, HELLO)))
        threads[-1].start()
        while len(waiting) < 3:
            waiting += endpoint.calls(0.1)
        for call in waiting:
            call.answer(Reply("x", ChatMessage("assistant", ""), "stop", 1, 1))
        for thread in threads:
            thread.join()


def test_disconnected_program_is_recognised():
    with Endpoint() as endpoint:
        key = endpoint.admit("t")
        body = json.dumps(HELLO)
        with socket.create_connection(address(endpoint)) as hanging_up:
            hanging_up.sendall(head(key, len(body)) + body.encode())
            (call,) = endpoint.calls(10)
            assert not call.is_abandoned
        stop_at = time.monotonic() + 10
        while not call.is_abandoned and time.monotonic() < stop_at:
            time.sleep(0.01)
        assert call.is_abandoned
        call.answer(Reply("x", ChatMessage("assistant", ""), "stop", 1, 1))


def test_only_the_loopback_interface_is_served():
    with Endpoint() as endpoint:
        assert endpoint.url.startswith("http://127.0.0.1:")
