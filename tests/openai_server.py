"""A server with an OpenAI-compatible API and injected failures, for tests of its clients."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SAID = "<think>go</think><answer>Right</answer>"


def by_last_message(say):
    """Answer a request by the text of its last message."""
    return lambda body: say(body["messages"][-1]["content"])


class Server(ThreadingHTTPServer):
    """Completions server; `script` lists the outcomes of the first requests, one word each. `say` is the text of all
    responses, or makes it of a request. `prompt_logprobs` makes those of a prompt's tokens."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests, self.greetings = [], [], 0
        self.models, self.say, self.delay_s, self.finish = ["a-model"], SAID, 0.0, "stop"
        self.token_ids = self.prompt_logprobs = None
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *_):
        """Ignore connections that a test cuts."""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.greetings += 1
        self.answer(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.server.models]})

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            what = server.script.pop(0) if server.script else "ok"
            server.requests.append((time.monotonic(), what, self.path, body, self.headers["Authorization"]))
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
        time.sleep(server.delay_s)
        with server.lock:
            server.in_flight -= 1
        if what == "reset":
            self.close_connection = True
            self.connection.close()
        elif what == "silence":
            time.sleep(3)
        elif what == "html":
            self.answer(200, "<html>welcome</html>", "text/html")
        elif what == "odd":
            self.answer(200, {"choices": []})
        elif what == "cut":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "500")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
        elif what == "429":
            self.answer(429, {"error": {"message": "slow down"}}, headers={"Retry-After": "0.4"})
        elif what != "ok":
            self.answer(int(what), {"error": {"message": f"refused {self.headers['Authorization']}"}})
        else:
            text = server.say(body) if callable(server.say) else server.say
            reply = {"message": {"role": "assistant", "content": text}} if "chat" in self.path else {}
            choice = {"index": 0, "finish_reason": server.finish, "text": text, **reply}
            choice |= {"token_ids": server.token_ids} if server.token_ids is not None else {}
            if server.prompt_logprobs is not None:
                choice["prompt_logprobs"] = server.prompt_logprobs(body["prompt"], body["prompt_logprobs"])
            usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
            self.answer(200, {"id": "x", "object": "text_completion", "choices": [choice], "usage": usage})

    def answer(self, status, content, kind="application/json", headers=None):
        payload = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(payload)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)
