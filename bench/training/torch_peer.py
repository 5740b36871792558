"""The yardstick of the training benchmark: the same trainer in PyTorch, on the CPU, behind the same socket protocol.

    torch_peer.py serve SOCKET N_FEATURES BATCH    answers until it is killed; prints "listening" first
    torch_peer.py step N_FEATURES BATCH COUNT      prints the microseconds of one step, mean over COUNT steps

One thread per connection, one lock around admission, one step at a time, half of each batch replayed: what a plain
implementation looks like. It writes no checkpoints.
"""
import json
import os
import random
import socket
import sys
import threading
import time
from collections import deque

# More threads than one only wait for each other at this size. The variable must be set before the import; what
# torch.set_num_threads says holds for the calling thread alone.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
import torch  # noqa: E402


class Trainer:
    def __init__(self, width: int, batch: int) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        self.ema = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-5)
        self.width, self.new_rows, self.replay_rows = width, batch - batch // 2, batch // 2
        self.pending: deque = deque()
        self.buffer: deque = deque(maxlen=10_000)
        self.lock, self.training, self.steps = threading.Lock(), False, 0

    def step(self, rows: list) -> float:
        features = torch.tensor([row[0] for row in rows], dtype=torch.float32)
        targets = torch.tensor([row[1] for row in rows], dtype=torch.float32)
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(features).reshape(len(rows)), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.steps < 100:
            for group in self.optimizer.param_groups:
                group["lr"] = 1e-4 * (self.steps + 1) / 100
        self.optimizer.step()
        self.steps += 1
        with torch.no_grad():
            for average, parameter in zip(self.ema, self.model.parameters()):
                average.mul_(0.999).add_(parameter, alpha=0.001)
        return float(loss.detach())

    def ingest(self, sample: tuple) -> dict:
        with self.lock:
            self.pending.append(sample)
            self.buffer.append(sample)
            if self.training or len(self.pending) < self.new_rows:
                return {"ok": True, "step": self.steps, "trained": False}
            self.training = True
            window = [self.pending.popleft() for _ in range(self.new_rows)]
            held = len(self.buffer)
            places = random.sample(range(held), min(held, self.replay_rows))
            window += [self.buffer[place] for place in places]
        loss = self.step(window)
        with self.lock:
            self.training = False
        return {"ok": True, "step": self.steps, "trained": True, "loss": loss, "checkpoint": None}

    def answer(self, line: bytes) -> dict:
        try:
            message = json.loads(line)
            features, score = message["features"], float(message["true_score"])
            if len(features) != self.width:
                raise ValueError(f"feature vector length {len(features)} != expected {self.width}")
            result = self.ingest(([float(value) for value in features], score))
            return {**result, "job_id": message.get("job_id", "")}
        except (KeyError, TypeError, ValueError) as error:
            return {"ok": False, "error": str(error)}

    def handle(self, connection: socket.socket) -> None:
        rest = b""
        while data := connection.recv(65_536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip():
                    connection.sendall(json.dumps(self.answer(line)).encode() + b"\n")
        connection.close()


def serve(path: str, width: int, batch: int) -> None:
    trainer = Trainer(width, batch)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    print("listening", flush=True)
    while True:
        threading.Thread(target=trainer.handle, args=(listener.accept()[0],), daemon=True).start()


def step(width: int, batch: int, count: int) -> None:
    trainer = Trainer(width, batch)
    rows = [([random.random() for _ in range(width)], 100 * random.random()) for _ in range(batch)]
    for _ in range(200):
        trainer.step(rows)
    started = time.perf_counter()
    for _ in range(count):
        trainer.step(rows)
    print(1e6 * (time.perf_counter() - started) / count)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        step(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
