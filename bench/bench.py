"""Weft against PyTorch, one training step at a time, taking turns on the same cores; see bench/README.md.

Usage: bench.py WEFT [--python PYTHON] [--workloads NAME,...] [--rounds N] [--steps N] [--output FILE]
"""
import argparse
import datetime
import json
import os
import platform
import random
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time

GPT2_BABY = dict(family="gpt2", vocab=65, dim=384, layers=6, heads=6, bias=False, max_seq_len=256)
GPT2_124M = dict(family="gpt2", vocab=50257, dim=768, layers=12, heads=12, bias=True, max_seq_len=1024)
LLAMA = dict(family="llama", vocab=2048, dim=256, layers=6, heads=16, kv_heads=16, ffn=768,
             norm_eps=1e-5, rope_theta=500000.0)


def workload(model, flavor, batch, seq_len, bar, aim, ranks=1, turns=(3, 5), memory_bar=None, options=()):
    """`turns`: rounds, and steps that count in each; `options`: further options of weft train."""
    return dict(model=model, flavor=flavor, batch=batch, seq_len=seq_len, bar=bar, aim=aim, ranks=ranks, turns=turns,
                memory_bar=memory_bar, options=options)


# A step of the larger ones takes seconds. Fewer steps keep the time of all rows to about ten minutes.
FEW = (2, 2)
# Logits in four chunks; what is cheap to recompute is not kept.
LITTLE = ("--training.loss_chunks=4", "--activation_checkpoint.mode=memory_budget",
          "--activation_checkpoint.memory_budget=0.5")
WORKLOADS = {
    "baby-12x256": workload(GPT2_BABY, "baby", 12, 256, 1.25, 1.5),
    "llama-8x256": workload(LLAMA, "debug", 8, 256, 1.5, 2.5),
    "gpt2-1x256": workload(GPT2_124M, "124M", 1, 256, 1.35, 1.7, turns=(3, 3)),
    "gpt2-4x256": workload(GPT2_124M, "124M", 4, 256, 1.35, 1.7, turns=(3, 2)),
    "gpt2-4x256-memory": workload(GPT2_124M, "124M", 4, 256, None, None, turns=FEW, memory_bar=0.7, options=LITTLE),
    "gpt2-1x1024": workload(GPT2_124M, "124M", 1, 1024, 1.35, 1.7, turns=FEW),
    "baby-64x256": workload(GPT2_BABY, "baby", 64, 256, 1.25, 1.5, turns=FEW),
    "baby-12x256-fsdp2": workload(GPT2_BABY, "baby", 12, 256, 2.0, 3.0, ranks=2),
    "gpt2-4x256-fsdp2": workload(GPT2_124M, "124M", 4, 256, 2.0, 3.0, ranks=2, turns=FEW),
}
LEARNING_RATE = 1e-4
# Sides whose losses differ by more than this, relatively, do not train the same model.
LOSS_TOLERANCE = 1e-5
# Warm-up steps of a process, which are not counted: page faults, compilation, caches.
WARMUP = {"weft": 1, "eager": 2, "compile": 2}
# Seconds that a PyTorch process may take to answer; compilation takes longest.
PATIENCE = 400


class Weft:
    """Starts `weft train` anew for every turn; its output stays in the work folder."""

    def __init__(self, binary, work, folder):
        self.binary, self.work, self.folder = binary, work, folder
        self.config = os.path.join(folder, "bench.toml")
        family = work["model"]["family"]
        with open(self.config, "w") as file:
            file.write(f"""[job]
dump_folder = "{folder}/run"
[model]
name = "{family}"
flavor = "{work['flavor']}"
{"dropout = 0.0" if family == "gpt2" else ""}
[training]
dataset = "file"
dataset_path = "{folder}/tokens.bin"
local_batch_size = {work['batch'] // work['ranks']}
seq_len = {work['seq_len']}
[optimizer]
lr = {LEARNING_RATE}
[lr_scheduler]
warmup_steps = 0
decay_type = "constant"
[metrics]
log_freq = 1
""")

    def command(self, *options):
        ranks = ["--ranks", str(self.work["ranks"]), "--device.threads=1"] if self.work["ranks"] > 1 else []
        return [self.binary, "train", self.config, *ranks, *self.work["options"], *options]

    def initial_weights(self):
        """One step at learning rate 0 saves the initial weights unchanged."""
        run([self.binary, "train", self.config, "--optimizer.lr=0", "--training.steps=1",
             "--checkpoint.weights_only=true", f"--job.dump_folder={self.folder}/initial"])
        return os.path.join(self.folder, "initial", "checkpoints", "step-1", "model.safetensors")

    def steps(self, count):
        options = [f"--training.steps={count}", "--checkpoint.enable=false", "--overwrite"]
        child = subprocess.Popen(self.command(*options), stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"weft train ended with {child.returncode}")
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        lines = [line for line in lines if "loss" in line][-count:]
        return dict(losses=[line["loss"] for line in lines], growth=usage.ru_maxrss * 1024,
                    seconds=[line["seconds"] for line in lines])

    def floor(self):
        """Milliseconds if every matmul ran at the best measured rate and the rest at memory bandwidth."""
        if self.work["ranks"] > 1:
            return None
        text = run([self.binary, "bench", "ops", self.config, "--repeats", "3", *self.work["options"]])
        found = re.search(r"^floor ([0-9.]+) ms .* ([0-9.]+) GFLOP of matmuls at ([0-9.]+) GFLOP/s", text, re.MULTILINE)
        total = re.search(r"^ *([0-9.]+) +100.0% +[0-9]+ +([0-9.]+) .* all$", text, re.MULTILINE)
        return dict(ms=float(found[1]), matmul_gflop=float(found[2]), gflops=float(found[3]),
                    step_gflop=float(total[1]) * float(total[2]) * 1e-3)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """A PyTorch process (one per rank) that waits for its turn."""

    def __init__(self, python, work, mode, weights, folder):
        here = os.path.dirname(os.path.abspath(__file__))
        ranks = work["ranks"]
        job = dict(model=dict(work["model"], seq_len=work["seq_len"]), batch=work["batch"], mode=mode,
                   weights=weights, tokens=f"{folder}/tokens.bin", lr=LEARNING_RATE, world=ranks,
                   threads=1 if ranks > 1 else len(os.sched_getaffinity(0)))
        self.processes = []
        port = str(free_port())
        for rank in range(ranks):
            environment = dict(os.environ, OMP_NUM_THREADS=str(job["threads"]), RANK=str(rank), LOCAL_RANK=str(rank),
                               WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            self.processes.append(subprocess.Popen([python, os.path.join(here, "peer.py"), json.dumps(job)],
                                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                   stderr=open(f"{folder}/{mode}.{rank}.log", "w"), env=environment))
        self.log = f"{folder}/{mode}.0.log"
        self.pending = b""

    def read(self):
        """The next line of rank 0 as JSON; RuntimeError when the process ends or does not answer in time."""
        until = time.monotonic() + PATIENCE
        output = self.processes[0].stdout
        while b"\n" not in self.pending:
            if not select.select([output], [], [], max(0, until - time.monotonic()))[0]:
                raise RuntimeError(f"no answer within {PATIENCE} s")
            data = os.read(output.fileno(), 65536)
            if not data:
                with open(self.log) as file:
                    last = file.read().strip().split("\n")[-1]
                raise RuntimeError(f"the PyTorch process ended: {last}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def ask(self, what):
        try:
            for process in self.processes:
                process.stdin.write(f"{what}\n".encode())
                process.stdin.flush()
        except OSError as error:
            raise RuntimeError(f"the PyTorch process ended: {error}") from None
        return self.read()

    def steps(self, count):
        return self.ask(count)

    def end(self):
        for process in self.processes:
            try:
                process.stdin.close()
            except OSError:
                pass
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return result.stdout


def write_tokens(path, work):
    """A token file of one window, so that every sample is the same on both sides."""
    source = random.Random(1)
    ids = [source.randrange(work["model"]["vocab"]) for _ in range(work["seq_len"] + 1)]
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{len(ids)}H", *ids))


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def start_peers(name, work, arguments, weights, folder):
    """Starts all PyTorch sides at once and returns those that come up."""
    modes = ["eager", "compile"] if work["ranks"] == 1 else ["eager"]
    started = {mode: Peer(arguments.python, work, mode, weights, folder) for mode in modes if arguments.python}
    peers = {}
    for mode, peer in started.items():
        try:
            peer.version = peer.read()["ready"]
            peers[mode] = peer
        except RuntimeError as error:
            skip(name, mode, peer, error)
    return peers


def skip(name, mode, peer, error):
    print(f"SKIPPED: {name}: PyTorch {mode}: {error}", flush=True)
    peer.end()


def measure(name, work, arguments, folder):
    """Runs Weft and its peers in turns; returns {side: {seconds, growth, losses}} and the floor."""
    write_tokens(f"{folder}/tokens.bin", work)
    weft = Weft(arguments.weft, work, folder)
    sides = {"weft": weft, **start_peers(name, work, arguments, weft.initial_weights(), folder)}
    results = {side: dict(seconds=[], losses=[]) for side in sides}
    for turn in range(arguments.rounds or work["turns"][0]):
        for side, runner in list(sides.items()):
            # A peer process stays alive, so it is warm after its first turn.
            extra = WARMUP[side] if turn == 0 or side == "weft" else 0
            try:
                taken = runner.steps((arguments.steps or work["turns"][1]) + extra)
            except RuntimeError as error:
                skip(name, side, runner, error)
                del sides[side], results[side]
                continue
            results[side]["seconds"] += taken["seconds"][extra:]
            results[side]["growth"] = taken["growth"]
            results[side]["losses"] = results[side]["losses"] or taken["losses"]
    for side, runner in sides.items():
        if side != "weft":
            results[side]["gemm_gflops"] = runner.ask("gemm")["gemm_gflops"]
            results[side]["version"] = runner.version
            runner.end()
    results["floor"] = weft.floor()
    return results


def report(name, work, results):
    """Prints one workload and returns its row of the table."""
    tokens = work["batch"] * work["seq_len"]
    best = {side: min(result["seconds"]) for side, result in results.items() if side != "floor"}
    for side, seconds in best.items():
        print(f"  {side:8} best {seconds * 1e3:9.1f} ms  median {median(results[side]['seconds']) * 1e3:9.1f} ms"
              f"  {tokens / seconds:9.0f} tokens/s  resident +{results[side]['growth'] / 2**20:.0f} MiB")
    row = dict(workload=name, bar=work["bar"], aim=work["aim"], weft_ms=best["weft"] * 1e3,
               tokens_per_second=tokens / best["weft"], memory_bar=work["memory_bar"])
    peers = [side for side in best if side != "weft"]
    if peers:
        fastest = min(peers, key=best.get)
        row.update(peer_ms={side: best[side] * 1e3 for side in peers}, ratio=best[fastest] / best["weft"],
                   memory=results["weft"]["growth"] / min(results[side]["growth"] for side in peers))
        pairs = list(zip(results["weft"]["losses"], results[fastest]["losses"]))
        row["loss_difference"] = max(abs(a - b) / abs(b) for a, b in pairs)
    if results["floor"]:
        floor = results["floor"]
        row["gemm_gflops"] = max([floor["gflops"]] + [results[side]["gemm_gflops"] for side in peers])
        saved = floor["matmul_gflop"] * (1 / floor["gflops"] - 1 / row["gemm_gflops"]) * 1e3
        row["of_floor"] = (floor["ms"] - saved) / row["weft_ms"]
        row["of_peak"] = floor["step_gflop"] / best["weft"] / row["gemm_gflops"]
    print("  " + json.dumps(row), flush=True)
    return row


def table(rows):
    def cell(row, key, form):
        return form.format(row[key]) if row.get(key) is not None else "-"

    def missed(row, key, bar, reached):
        return ", missed" if row.get(key) and row[bar] and not reached(row[key], row[bar]) else ""

    lines = ["| workload | Weft ms | tokens/s | PyTorch ms | ratio | bar | aim | of the floor | of the GEMM peak |"
             " memory | bar | loss difference |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        peers = ", ".join(f"{ms:.0f} {side}" for side, ms in row.get("peer_ms", {}).items()) or "skipped"
        slow = missed(row, "ratio", "bar", lambda ratio, bar: round(ratio, 2) >= bar)
        large = missed(row, "memory", "memory_bar", lambda share, bar: round(share, 2) <= bar)
        lines.append(f"| {row['workload']} | {row['weft_ms']:.0f} | {row['tokens_per_second']:.0f} | {peers} | "
                     f"{cell(row, 'ratio', '{:.2f}')}{slow} | {cell(row, 'bar', '{}')} | {cell(row, 'aim', '{}')} | "
                     f"{cell(row, 'of_floor', '{:.0%}')} | {cell(row, 'of_peak', '{:.0%}')} | "
                     f"{cell(row, 'memory', '{:.2f}')}{large} | {cell(row, 'memory_bar', '{}')} | "
                     f"{cell(row, 'loss_difference', '{:.1e}')} |")
    return "\n".join(lines)


def machine():
    with open("/proc/cpuinfo") as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def write_results(path, head, rows, figures, versions):
    """Writes all rows so far, so that an interrupted run leaves its results."""
    steps = {name: {side: [round(second * 1e3, 1) for second in result["seconds"]]
                    for side, result in results.items() if side != "floor"} for name, results in figures.items()}
    with open(path, "w") as file:
        file.write(f"# Training steps on the CPU\n\n{head}\nPyTorch {', '.join(sorted(versions)) or 'skipped'}\n\n"
                   f"{table(rows)}\n\nThe columns are those of [the benchmark](../bench/README.md). Milliseconds of every "
                   f"counted step:\n\n```json\n")
        file.write("\n".join(f"{name}: {json.dumps(sides)}" for name, sides in steps.items()) + "\n```\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("weft")
    parser.add_argument("--python", default="", help="interpreter that has PyTorch; empty: Weft alone")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="rows, in this order")
    parser.add_argument("--rounds", type=int, default=0, help="turns of each side; 0: as the row says")
    parser.add_argument("--steps", type=int, default=0, help="counted steps of one turn; 0: as the row says")
    parser.add_argument("--output", default="", help="also write the table and all figures here")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.workloads.split(",") if name not in WORKLOADS]
    if unknown:
        sys.exit(f"--workloads: found {', '.join(unknown)}, expected some of {', '.join(WORKLOADS)}")
    arguments.weft = os.path.abspath(arguments.weft)
    if not arguments.python:
        print("SKIPPED: PyTorch cannot be had; Weft is measured alone", flush=True)
    commit = run(["git", "rev-parse", "--short", "HEAD"]).strip()
    head = (f"{machine()}\n{datetime.date.today()}, commit {commit}\n"
            f"command `bench/run.sh build/weft --workloads {arguments.workloads}`")
    print(head, flush=True)
    rows, figures, versions = [], {}, set()
    for name in arguments.workloads.split(","):
        start = time.monotonic()
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results = measure(name, WORKLOADS[name], arguments, folder)
        rows.append(report(name, WORKLOADS[name], results))
        figures[name] = results
        versions |= {result["version"] for result in results.values() if result and "version" in result}
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
        if arguments.output:
            write_results(arguments.output, head, rows, figures, versions)
    print("\n" + table(rows))
    wrong = [row["workload"] for row in rows if row.get("loss_difference", 0) > LOSS_TOLERANCE]
    if wrong:
        sys.exit(f"{', '.join(wrong)}: the losses differ by more than {LOSS_TOLERANCE}: not the same training")


if __name__ == "__main__":
    main()
