"""Six threads, queues between them, hashes and a file: what comes out is known."""
import hashlib, queue, sys, threading

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 400
work, done = queue.Queue(20), queue.Queue()


def worker():
    while (item := work.get()) is not None:
        done.put((item, hashlib.sha256(b"x" * (item % 5000)).hexdigest()))


threads = [threading.Thread(target=worker) for _ in range(6)]
for thread in threads:
    thread.start()
found = {}
for r in range(rounds):
    for item in range(10):
        work.put(r * 10 + item)
    for _ in range(10):
        item, digest = done.get()
        found[item] = digest
    with open("f", "a") as file:
        file.write(f"{r}\n")
for _ in threads:
    work.put(None)
for thread in threads:
    thread.join()
text = "".join(found[item] for item in sorted(found))
print(len(found), hashlib.sha256(text.encode()).hexdigest(), sum(1 for _ in open("f")))
