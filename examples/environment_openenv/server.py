#!/usr/bin/env python3
"""An environment on an OpenEnv server: guess a number (docs/environments.md#a-server-of-openenv).

    .venv-openenv/bin/python examples/environment_openenv/server.py [PORT]

Prints "listening PORT"; PORT 0 takes a free one."""

import random
import socket
import sys

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: int


class Hint(Observation):
    text: str


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True  # each session has its own object

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.secret, self.left = random.Random(seed).randint(1, 20), 5
        return Hint(text=f"Guess a number from 1 to 20. {self.left} guesses are left.")

    def step(self, action, timeout_s=None, **kwargs):
        self.left -= 1
        off = action.number - self.secret
        hint = "right" if off == 0 else "too low" if off < 0 else "too high"
        return Hint(text=f"{action.number} is {hint}. {self.left} guesses are left.",
                    reward=1 - min(abs(off), 20) / 20, done=off == 0 or self.left == 0,
                    metadata={"success": off == 0})

    @property
    def state(self):
        return State()


app = create_app(Game, Guess, Hint, env_name="guess", max_concurrent_envs=256)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000))
listener.listen(256)
print("listening", listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
