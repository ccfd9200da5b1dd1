"""The built-in FrozenLake (grid, no slip) as a program: PCG64 as numpy seeds it, in plain Python."""

import json
import sys

M32, M64, M128 = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1
SIZE, FROZEN, MOVES = 4, 0.9, ["Left", "Down", "Right", "Up"]


class Pcg64:
    def __init__(self, seed):
        words = [seed & M32] + ([seed >> 32] if seed >> 32 else [])
        self.h = 0x43B0D7E5
        pool = [self.hashed(words[i] if i < len(words) else 0) for i in range(4)]
        for s in range(4):
            for d in range(4):
                if d != s:
                    pool[d] = self.mixed(pool[d], self.hashed(pool[s]))
        h, out = 0x8B51F9DD, []
        for i in range(8):
            v = pool[i % 4] ^ h
            h = h * 0x58F38DED & M32
            v = v * h & M32
            out.append(v ^ v >> 16)
        w = [out[i] | out[i + 1] << 32 for i in range(0, 8, 2)]
        self.inc = ((w[2] << 64 | w[3]) << 1 | 1) & M128
        self.state, self.half = 0, None
        self.turn()
        self.state = (self.state + (w[0] << 64 | w[1])) & M128
        self.turn()

    def hashed(self, v):
        v ^= self.h
        self.h = self.h * 0x931E8875 & M32
        v = v * self.h & M32
        return v ^ v >> 16

    @staticmethod
    def mixed(x, y):
        r = (0xCA01F9DD * x - 0x4973F715 * y) & M32
        return r ^ r >> 16

    def turn(self):
        self.state = (self.state * (2549297995355413924 << 64 | 4865540595714422341) + self.inc) & M128

    def u64(self):
        self.turn()
        x, r = self.state >> 64 ^ self.state & M64, self.state >> 122
        return (x >> r | x << (64 - r)) & M64

    def u32(self):
        if self.half is not None:
            x, self.half = self.half, None
            return x
        x = self.u64()
        self.half = x >> 32
        return x & M32

    def random(self):
        return (self.u64() >> 11) * 2.0 ** -53

    def below(self, n):
        while True:
            m = self.u32() * n
            if (m & M32) >= n or (m & M32) >= (2 ** 32 - n) % n:
                return m >> 32


def moved(cell, way):
    row, column = divmod(cell, SIZE)
    row += (way == 1) - (way == 3)
    column += (way == 2) - (way == 0)
    return cell if not (0 <= row < SIZE and 0 <= column < SIZE) else row * SIZE + column


def has_way(cells, start):
    queue, seen = [start], {start}
    for cell in queue:
        if cells[cell] == "G":
            return True
        for there in (moved(cell, way) for way in range(4)):
            if there not in seen and cells[there] != "H":
                seen.add(there)
                queue.append(there)
    return False


class Lake:
    def draw(self):
        rows = [""] * SIZE
        for i, cell in enumerate(self.cells):
            rows[i // SIZE] += {"H": "OX", "G": "G√"}.get(cell, "_P")[i == self.player]
        return "\n".join(rows)

    def reset(self, seed):
        stream = Pcg64(seed)
        while True:
            cells = ["F" if stream.random() < FROZEN else "H" for _ in range(SIZE * SIZE)]
            start = stream.below(SIZE) * SIZE + stream.below(SIZE)
            goal = stream.below(SIZE) * SIZE + stream.below(SIZE)
            if goal == start:
                continue
            cells[start], cells[goal] = "S", "G"
            if has_way(cells, start):
                break
        self.cells, self.player = cells, start
        return {"observation": self.draw(), "actions": MOVES}

    def step(self, action):
        before, self.player = self.player, moved(self.player, MOVES.index(action))
        won = self.cells[self.player] == "G"
        return {"observation": self.draw(), "reward": int(won),
                "done": self.cells[self.player] in "GH",
                "info": {"success": won, "action_is_effective": self.player != before,
                         "action_is_valid": True}}


if __name__ == "__main__":
    lake = Lake()
    for line in sys.stdin:
        question = json.loads(line)
        answer = lake.reset(**question["reset"]) if "reset" in question else lake.step(**question["step"])
        print(json.dumps(answer), flush=True)
