# Text to words to objects to JSON and back: what scripts do all day. Prints sums that say it was done.
import json


def numbers(seed):
    while True:
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        yield seed >> 8


class Order:
    def __init__(self, name, lines, note):
        self.name, self.lines, self.note = name, lines, note


source = numbers(7)
words = ["".join(chr(97 + next(source) % 26) for _ in range(2 + next(source) % 12)) for _ in range(3000)]
text = " ".join(words[next(source) % len(words)] for _ in range(120000))

counts = {}
for word in text.split():
    counts.setdefault(word, []).append(len(counts))
print(len(counts), sum(len(at) for at in counts.values()))

orders = []
for i in range(9000):
    lines = [{"article": words[next(source) % len(words)], "count": next(source) % 9} for _ in range(next(source) % 12)]
    orders.append(Order(words[i % len(words)], lines, " ".join(words[i % 800 : i % 800 + next(source) % 160])))
    if i % 3 == 0:
        del orders[next(source) % len(orders)]

for _ in range(3):
    wire = json.dumps([vars(order) for order in orders])
    orders = [Order(**fields) for fields in json.loads(wire)]
    parts = wire.split('"note": ')
    print(len(wire), len(parts), len(wire.replace("article", "item").upper().encode()))

table = [bytearray(600 + next(source) % 4000) for _ in range(4000)]
for i in range(60000):
    table[next(source) % len(table)] = bytearray(520 + next(source) % 6000)
print(sum(len(row) for row in table))
