"""Weft beside PyTorch, one training step at a time, in turns on the same cores; see bench/README.md.

Usage: bench.py WEFT [--python PYTHON] [--workloads NAME,...] [--rounds N] [--steps N] [--output FILE]
"""
import argparse
import json
import os
import platform
import random
import re
import struct
import subprocess
import sys
import tempfile

GPT2_BABY = dict(family="gpt2", vocab=65, dim=384, layers=6, heads=6, bias=False, max_seq_len=256)
GPT2_124M = dict(family="gpt2", vocab=50257, dim=768, layers=12, heads=12, bias=True, max_seq_len=1024)
LLAMA = dict(family="llama", vocab=2048, dim=256, layers=6, heads=16, kv_heads=16, ffn=768,
             norm_eps=1e-5, rope_theta=500000.0)


def workload(model, flavor, batch, seq_len, bar, aim, ranks=1):
    return dict(model=model, flavor=flavor, batch=batch, seq_len=seq_len, bar=bar, aim=aim, ranks=ranks)


WORKLOADS = {
    "baby-12x256": workload(GPT2_BABY, "baby", 12, 256, 1.25, 1.5),
    "baby-64x256": workload(GPT2_BABY, "baby", 64, 256, 1.25, 1.5),
    "gpt2-1x256": workload(GPT2_124M, "124M", 1, 256, 1.35, 1.7),
    "gpt2-4x256": workload(GPT2_124M, "124M", 4, 256, 1.35, 1.7),
    "gpt2-1x1024": workload(GPT2_124M, "124M", 1, 1024, 1.35, 1.7),
    "llama-8x256": workload(LLAMA, "debug", 8, 256, 1.5, 2.5),
    "baby-12x256-fsdp2": workload(GPT2_BABY, "baby", 12, 256, 2.0, 3.0, ranks=2),
    "gpt2-4x256-fsdp2": workload(GPT2_124M, "124M", 4, 256, 2.0, 3.0, ranks=2),
}
LEARNING_RATE = 1e-4
# Steps that both sides take before any is counted: page faults, compilation, caches.
WARMUP = 2


class Weft:
    """Runs `weft train` afresh for every turn; what it writes stays in the work folder."""

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
        return [self.binary, "train", self.config, *ranks, *options]

    def initial_weights(self):
        """One step at rate 0 leaves the initial weights, and saves them."""
        run([self.binary, "train", self.config, "--optimizer.lr=0", "--training.steps=1"])
        return os.path.join(self.folder, "run", "weights", "model.safetensors")

    def steps(self, count):
        child = subprocess.Popen(self.command(f"--training.steps={count}", "--checkpoint.enable=false"),
                                 stdout=subprocess.DEVNULL)
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
        """Milliseconds if every matrix product ran at the best measured rate and the rest at memory bandwidth."""
        if self.work["ranks"] > 1:
            return None
        text = run([self.binary, "bench", "ops", self.config, "--repeats", "3"])
        found = re.search(r"^floor ([0-9.]+) ms .* at ([0-9.]+) GFLOP/s", text, re.MULTILINE)
        return dict(ms=float(found[1]), gflops=float(found[2]))


class Peer:
    """A PyTorch process (one per rank) that waits for its turn."""

    def __init__(self, python, work, mode, weights, folder):
        here = os.path.dirname(os.path.abspath(__file__))
        ranks = work["ranks"]
        job = dict(model=dict(work["model"], seq_len=work["seq_len"]), batch=work["batch"], mode=mode,
                   weights=weights, tokens=f"{folder}/tokens.bin", lr=LEARNING_RATE, world=ranks,
                   threads=1 if ranks > 1 else os.cpu_count())
        self.processes = []
        port = str(random.randrange(20000, 30000))
        for rank in range(ranks):
            environment = dict(os.environ, OMP_NUM_THREADS=str(job["threads"]), RANK=str(rank), LOCAL_RANK=str(rank),
                               WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            self.processes.append(subprocess.Popen([python, os.path.join(here, "peer.py"), json.dumps(job)],
                                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                   env=environment))
        self.ready = self.read()

    def read(self):
        line = self.processes[0].stdout.readline()
        if not line:
            raise RuntimeError("the PyTorch process ended")
        return json.loads(line)

    def steps(self, count):
        for process in self.processes:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
        return self.read()

    def end(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return result.stdout


def write_tokens(path, work):
    """One window: every sample of a batch is the same, whoever draws it."""
    source = random.Random(1)
    ids = [source.randrange(work["model"]["vocab"]) for _ in range(work["seq_len"] + 1)]
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{len(ids)}H", *ids))


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def measure(name, work, arguments, folder):
    """Rounds of Weft and its peers in turns; gives {side: {best, median, growth, losses}}."""
    write_tokens(f"{folder}/tokens.bin", work)
    weft = Weft(arguments.weft, work, folder)
    sides = {"weft": weft}
    weights = weft.initial_weights()
    modes = ["eager", "compile"] if work["ranks"] == 1 else ["eager"]
    for mode in modes if arguments.python else []:
        try:
            sides[mode] = Peer(arguments.python, work, mode, weights, folder)
        except RuntimeError as error:
            print(f"SKIPPED: {name}: PyTorch {mode}: {error}", flush=True)
    results = {side: dict(seconds=[], losses=[]) for side in sides}
    for turn in range(arguments.rounds):
        for side, runner in sides.items():
            # A peer that lives on has warmed up after its first turn.
            extra = WARMUP if turn == 0 or side == "weft" else 0
            taken = runner.steps(arguments.steps + extra)
            results[side]["seconds"] += taken["seconds"][extra:]
            results[side]["growth"] = taken["growth"]
            if turn == 0:
                results[side]["losses"] = taken["losses"]
    for side, runner in sides.items():
        if side != "weft":
            results[side]["gemm_gflops"] = runner.ready["gemm_gflops"]
            results[side]["version"] = runner.ready["ready"]
            runner.end()
    results["floor"] = weft.floor()
    return results


def report(name, work, results):
    """Prints one workload; gives its row of the table."""
    tokens = work["batch"] * work["seq_len"]
    best = {side: min(result["seconds"]) for side, result in results.items() if side != "floor"}
    for side, seconds in best.items():
        print(f"  {side:8} best {seconds * 1e3:9.1f} ms  median {median(results[side]['seconds']) * 1e3:9.1f} ms"
              f"  {tokens / seconds:9.0f} tokens/s  resident +{results[side]['growth'] / 2**20:.0f} MiB")
    row = dict(workload=name, bar=work["bar"], aim=work["aim"], weft_ms=best["weft"] * 1e3)
    peers = [side for side in best if side != "weft"]
    if peers:
        fastest = min(peers, key=best.get)
        row.update(peer=fastest, peer_ms=best[fastest] * 1e3, ratio=best[fastest] / best["weft"],
                   memory=results["weft"]["growth"] / min(results[side]["growth"] for side in peers))
        pairs = list(zip(results["weft"]["losses"], results[fastest]["losses"]))
        row["loss_difference"] = max(abs(a - b) / abs(b) for a, b in pairs)
    if results["floor"]:
        row["of_floor"] = results["floor"]["ms"] / (best["weft"] * 1e3)
        row["gemm_gflops"] = results["floor"]["gflops"]
        row["peer_gemm_gflops"] = max([results[side]["gemm_gflops"] for side in peers], default=None)
    print("  " + json.dumps(row), flush=True)
    return row


def table(rows):
    def cell(row, key, form):
        return form.format(row[key]) if row.get(key) is not None else "-"

    lines = ["| workload | Weft ms | best PyTorch ms | ratio | bar | of the floor | memory | loss difference |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        peer = f"{row['peer_ms']:.0f} ({row['peer']})" if "peer" in row else "skipped"
        lines.append(f"| {row['workload']} | {row['weft_ms']:.0f} | {peer} | {cell(row, 'ratio', '{:.2f}')} | "
                     f"{row['bar']} | {cell(row, 'of_floor', '{:.0%}')} | {cell(row, 'memory', '{:.2f}')} | "
                     f"{cell(row, 'loss_difference', '{:.1e}')} |")
    return "\n".join(lines)


def machine():
    with open("/proc/cpuinfo") as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("weft")
    parser.add_argument("--python", default="", help="interpreter that has PyTorch; empty: Weft alone")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="counted steps of one turn")
    parser.add_argument("--output", default="", help="also write the table and all figures here")
    arguments = parser.parse_args()
    arguments.weft = os.path.abspath(arguments.weft)
    if not arguments.python:
        print("SKIPPED: PyTorch cannot be had; Weft is measured alone", flush=True)
    head = f"{machine()}\ncommit {run(['git', 'rev-parse', '--short', 'HEAD']).strip()}\ncommand {' '.join(sys.argv)}"
    print(head, flush=True)
    rows, figures = [], {}
    for name in arguments.workloads.split(","):
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results = measure(name, WORKLOADS[name], arguments, folder)
        rows.append(report(name, WORKLOADS[name], results))
        figures[name] = results
    print("\n" + table(rows))
    if arguments.output:
        versions = {result["version"] for results in figures.values() for result in results.values()
                    if result and "version" in result}
        with open(arguments.output, "w") as file:
            file.write(f"# make bench\n\n{head}\nPyTorch {', '.join(sorted(versions)) or 'skipped'}\n\n{table(rows)}\n\n"
                       f"```json\n{json.dumps(figures)}\n```\n")


if __name__ == "__main__":
    main()
