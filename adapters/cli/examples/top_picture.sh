# What the picture in adapters/cli/README.md shows: two programs whose memory grows and shrinks, and their output.
grow='import sys, time
step, name = int(sys.argv[1]), sys.argv[2]
blocks = []
for turn in range(12):
    blocks += [bytearray(1 << 20) for _ in range(step)]
    if turn % 4 == 3:
        del blocks[len(blocks) // 2:]
    print(f"{name}: turn {turn}, {len(blocks)} MiB", flush=True)
    time.sleep(0.4)'
python3 -c "$grow" 24 loader &
python3 -c "$grow" 40 trainer
wait
