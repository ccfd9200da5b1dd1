"""A server of messages by hand, which speaks OpenEnv until it is asked for trouble; 127.0.0.1, a
free port: prints "listening PORT".

A step's action is the name of what to do; see ANSWERS and `step`; "say X" answers X. What stands before /ws or /schema
in a path makes trouble earlier; see `connect`.
"""

import base64
import hashlib
import json
import os
import socket
import socketserver
import struct
import sys
import threading
import time

GOOD = {"observation": {"text": "fine", "metadata": {"half": 0.5, "why": "x"}}, "reward": 1,
        "done": False}


def with_data(**changes):
    return json.dumps({"type": "observation", "data": {**GOOD, **changes}})


ANSWERS = {
    "up": with_data(),
    "win": with_data(done=True, reward=True),
    "lose": with_data(done=True, reward=0),
    "none": with_data(reward=None),
    "nonsense": "hello there",
    "number": "7",
    "empty": "{}",
    "list": '{"type": "observation", "data": [1]}',
    "stranger": '{"type": "state", "data": {}}',
    "huge": with_data(reward=1e300),
    "text": with_data(reward="1"),
    "endless": with_data(done=None),
    "blind": with_data(observation="x"),
    "several": with_data(observation={"a": "x", "b": "y", "metadata": {}, "n": [1, 2]}),
    "error": '{"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "it broke"}}',
    "odd": '{"type": "error", "data": {"code": 3}}',
    "refuse": '{"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "no"}}',
}
SCHEMA = {"action": {"type": "object", "required": ["word"],
                     "properties": {"word": {"type": "string"}, "metadata": {"type": "object"}}}}
seen = {}


class Session(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def frame(self, data, kind=1, final=True):
        n = len(data)
        size = (bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536
                else b"\x7f" + struct.pack(">Q", n))
        self.wfile.write(bytes([kind | 0x80 * final]) + size + data)
        self.wfile.flush()

    def message(self):
        kind, n = self.rfile.read(2)
        n &= 127
        if n > 125:
            n = int.from_bytes(self.rfile.read(2 if n == 126 else 8), "big")
        mask, data = self.rfile.read(4), self.rfile.read(n)
        return kind & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(data))

    def document(self, status, text):
        self.wfile.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text))

    def handle(self):
        try:
            self.connect()
        except (OSError, ValueError):
            pass

    def connect(self):
        path, key = self.rfile.readline().split()[1].decode(), b""
        while (line := self.rfile.readline().strip()):
            if line.lower().startswith(b"sec-websocket-key:"):
                key = line.split(b":")[1].strip()
        base, _, what = path.rpartition("/")
        seen[path] = seen.get(path, 0) + 1
        if what == "schema":
            if base == "/silent":
                time.sleep(1000)
            if base == "/moved":
                self.wfile.write(b"HTTP/1.1 302 x\r\nLocation: /schema\r\nContent-Length: 0\r\n\r\n")
            if base == "/flood":
                return self.document(200, b"x" * (3 << 20))
            if base == "/fields":
                SCHEMA["action"]["required"] = ["word", "speed"]
            return self.document(200, b"[" if base == "/nonsense" else json.dumps(SCHEMA).encode())
        if base == "/refused":
            return self.document(403, b"")
        if base == "/mute":
            time.sleep(1000)
        if base == "/late" and seen[path] < 3:
            return
        accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.wfile.write(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n")
        if base == "/full":
            self.frame(b'{"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}}')
            return self.frame(struct.pack(">H", 1000), 8)
        self.session()

    def session(self):
        while True:
            kind, data = self.message()
            if kind == 8:
                return
            if kind != 1:
                continue
            request = json.loads(data)
            if request["type"] == "state":
                self.frame(b'{"type": "state", "data": {"step_count": 0}}')
            elif request["type"] == "reset":
                self.seed = request["data"]["seed"]
                self.frame({13: b"nonsense", 14: with_data(observation=3).encode(),
                            15: with_data(done=True).encode(), 16: ANSWERS["error"].encode()}.get(
                    self.seed, with_data(observation={"text": "seed %d" % self.seed}).encode()))
            else:
                self.step(request["data"])
                if request["data"].get("word") == "close":
                    return

    def step(self, action):
        word = action["word"]
        if word.startswith("say "):
            return self.frame(word[4:].encode())
        if word == "late":
            time.sleep(1)
            word = "up"
        elif word == "close":
            return self.frame(struct.pack(">H", 1011) + "tired\x1b".encode(), 8)
        elif word == "hang up":
            return self.connection.shutdown(socket.SHUT_RDWR)
        elif word == "die":
            os._exit(7)
        elif word == "flood":
            for i in range(64):
                self.frame(b"x" * 65536, 1 if i == 0 else 0, i == 63)
        elif word == "twice":
            self.frame(ANSWERS["up"].encode())
            word = "up"
        elif word == "pieces":
            text = ANSWERS["up"].encode()
            for i in range(len(text)):
                self.frame(text[i:i + 1], 1 if i == 0 else 0, i == len(text) - 1)
                if i == 3:
                    self.frame(b"hello", 9)
            return
        elif word == "bytes":
            return self.frame(b'{"type": "\xff\xfe"}', 2)
        elif word == "binary":
            return self.frame(ANSWERS["up"].encode(), 2)
        elif word == "no frame":
            self.wfile.write(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
            return self.wfile.flush()
        self.frame(ANSWERS.get(word, with_data(observation={"text": json.dumps(action)})).encode())


class Server(socketserver.ThreadingTCPServer):
    daemon_threads, request_queue_size, allow_reuse_address = True, 128, True


sys.stderr = open(os.devnull, "w")
# ends with the test, whose end of the pipe this is
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
with Server(("127.0.0.1", 0), Session) as server:
    print("listening", server.server_address[1], flush=True)
    server.serve_forever()
