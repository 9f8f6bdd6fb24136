"""Work for python3 whose output is always the same: objects of many sizes, threads, other processes, libraries in C."""
import array, bz2, collections, decimal, hashlib, io, json, lzma, random, re, sqlite3, subprocess, sys, threading, zlib

random.seed(5)
words = ["".join(random.choices("abcdefgh", k=random.randint(1, 40))) for _ in range(60000)]
counts = collections.Counter(words)
print(len(counts), sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3])

text = json.dumps({word: [index, {"w": word * (index % 7)}] for index, word in enumerate(words)})
again = json.loads(text)
print(len(text), hashlib.sha256(text.encode()).hexdigest(), len(again))

buffer = io.BytesIO()
for size in range(1, 60000, 997):
    buffer.write(bytes(size))
    buffer.write(hashlib.md5(str(size).encode()).digest())
packed = [module.compress(buffer.getvalue()) for module in (zlib, bz2, lzma)]
print([len(module.decompress(data)) for module, data in zip((zlib, bz2, lzma), packed)])

print(len(re.findall(r"(a[bc]+)+d", text)), decimal.Decimal(2).sqrt(decimal.Context(prec=2000)).as_tuple().digits[-5:])

results = [None] * 4
def work(number):
    rows = array.array("q")
    for index in range(100000):
        rows.append(index * number)
    parts = [bytearray(index % 3000) for index in range(3000)]
    results[number] = (sum(rows), sum(len(part) for part in parts))

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results)

database = sqlite3.connect(":memory:")
database.execute("create table t (w text, n int)")
database.executemany("insert into t values (?, ?)", enumerate(words))
print(database.execute("select count(*), count(distinct n) from t").fetchone())
print(subprocess.run([sys.executable, "-I", "-c", "print(sum(len(str(i)) for i in range(100000)))"], capture_output=True).stdout)
del again, words, counts
