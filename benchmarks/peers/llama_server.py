#!/usr/bin/env python3
"""llama.cpp's server (PyPI xllamacpp) for a GGUF file, until SIGTERM: the peer of
benchmarks/serve.py. Prints the address.

    ares-train export --model DIR --gguf model.gguf
    python benchmarks/peers/llama_server.py model.gguf [--slots 32] [--context 4096] [--threads 2]
"""

import argparse
import signal

import xllamacpp

p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
p.add_argument("model")
p.add_argument("--slots", type=int, default=32, help="requests that are decoded at once")
p.add_argument("--context", type=int, default=4096, help="tokens over all slots")
p.add_argument("--threads", type=int, default=2)
a = p.parse_args()
params = xllamacpp.CommonParams()
params.model.path = a.model
params.n_parallel = a.slots
params.n_ctx = a.context
params.cpuparams.n_threads = a.threads
params.cpuparams_batch.n_threads = a.threads
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
