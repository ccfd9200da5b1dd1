"""The lake of lake.py on a real OpenEnv server, 127.0.0.1, a free port: prints "listening PORT".

--sessions N: how many at once. --ping S: a session that leaves a ping unanswered for S is closed.
A reset may ask for trouble: late, raise, nan, flood, die.
"""

import os
import socket
import sys
import threading
import time
from typing import Literal, Optional

import uvicorn
from lake import MOVES, Lake
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    move: Literal["Left", "Down", "Right", "Up"]


class Ice(Observation):
    text: str
    legal: list = MOVES


class LakeEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.lake, self.steps = Lake(), 0

    def reset(self, seed: int, episode_id: Optional[str] = None, trouble=None, **kwargs):
        self.trouble, self.steps = trouble, 0
        return Ice(text=self.lake.reset(seed)["observation"])

    def step(self, action: Move, timeout_s=None, **kwargs):
        known = self.lake.step(action.move)
        self.steps += 1
        if self.trouble == "late":
            time.sleep(1)
        elif self.trouble == "raise":
            raise ValueError("the ice has broken")
        elif self.trouble == "nan":
            known["reward"] = float("nan")
        elif self.trouble == "flood":
            known["observation"] *= 100000
        elif self.trouble == "die":
            os._exit(3)
        return Ice(text=known["observation"], reward=known["reward"], done=known["done"],
                   metadata=known["info"])

    @property
    def state(self):
        return State(step_count=self.steps)


def option(name, default):
    return float(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


app = create_app(LakeEnvironment, Move, Ice, env_name="lake",
                 max_concurrent_envs=int(option("--sessions", 64)))
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(128)
print("listening", listener.getsockname()[1], flush=True)
# ends with the test, whose end of the pipe this is
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
ping = option("--ping", 20)
uvicorn.Server(uvicorn.Config(app, log_level="error", ws_ping_interval=ping,
                              ws_ping_timeout=ping)).run(sockets=[listener])
