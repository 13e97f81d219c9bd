"""Weft against PyTorch on one GPU, in one call: the same model, batch, precision, clipping and
update. Prints a table with ratios, memory, TFLOP/s and the two floors of each workload, and fails
where a bar is missed or, with --spec, a plan promises something else than the run shows.
`make gpu-bench` calls it."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 1 << 30

KEPT = ["--training.keep_low_precision=true"]  # bf16 weights, written by AdamW

# Rates behind the floors: a large bf16 matmul and a copy on an H200.
H200_FLOPS = 790e12
H200_BYTES = 4.3e12

# Bars are ratios to the peer: at least this speed, at most this memory. The peer is measured in these
# modes unless --modes names others.
WORKLOADS = {
    "gpt2-64": dict(config="gpt2_124m.toml", batch=64, length=1024, steps=60, speed=1.05,
                    memory=0.70, modes="full,block",
                    overrides=[*KEPT, "--training.loss_chunks=8", "--activation_checkpoint.mode=memory_budget",
                               "--activation_checkpoint.memory_budget=0.92"]),
    "gpt2-32": dict(config="gpt2_124m.toml", batch=32, length=1024, steps=60, speed=1.05,
                    memory=0.75, modes="full,block",
                    overrides=[*KEPT, "--training.loss_chunks=8", "--activation_checkpoint.mode=memory_budget",
                               "--activation_checkpoint.memory_budget=0.96"]),
    "llama-1b": dict(config="llama_1b.toml", batch=2, length=8192, steps=25, speed=1.05,
                     memory=0.80, modes="full,block",
                     overrides=[*KEPT, "--training.loss_chunks=8", "--activation_checkpoint.mode=memory_budget",
                                "--activation_checkpoint.memory_budget=0.7"]),
    "llama-3b": dict(config="llama_3b.toml", batch=1, length=8192, steps=15, speed=1.05,
                     memory=1.0, modes="block",
                     overrides=["--training.loss_chunks=8", "--activation_checkpoint.mode=full"]),
    # Two ranks on one GPU, through sockets: the link takes nearly the entire step, so recompute
    # costs nothing. Tokens and memory are those of one rank.
    "llama-200m": dict(config="llama_200m.toml", batch=4, length=1024, steps=20, speed=1.0,
                       memory=0.80, modes="full,eager", ranks=2,
                       overrides=["--training.loss_chunks=4", "--activation_checkpoint.mode=full"]),
}


# Largest relative difference between plan and run.
STEP_TIME, DEVICE_MEMORY, EXPOSED_TIME = 0.15, 0.03, 0.20


def is_off(predicted, measured, share):
    """Whether the prediction differs from the measurement by more than this share."""
    return not abs(predicted - measured) <= share * measured


def arguments_of(w):
    """Arguments that weft train, weft plan and weft bench tune share."""
    return [os.path.join(HERE, "gpu", w["config"]), f"--ranks={w.get('ranks', 1)}",
            f"--training.local_batch_size={w['batch']}", f"--training.seq_len={w['length']}",
            *w["overrides"]]


class DeviceMemory(threading.Thread):
    """Peak device memory in use while it runs, as the driver counts it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most = 0
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(0.5):
            used = subprocess.run(["nvidia-smi", "--query-gpu=memory.used",
                                   "--format=csv,noheader,nounits"], capture_output=True, text=True)
            self.most = max([self.most] + [int(x) << 20 for x in used.stdout.split()])

    def stop(self):
        self.done.set()
        self.join()
        return self.most


def run(name, command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: weft failed with exit code {done.returncode}: {done.stderr.strip()}")


def run_weft(weft, name, w):
    folder = tempfile.mkdtemp(prefix="weft-bench-")
    tuning = os.path.join(folder, "tuning.toml")
    run(name, [weft, "bench", "tune", *arguments_of(w), "--output", tuning])
    memory = DeviceMemory()
    memory.start()
    ranks = w.get("ranks", 1)
    shared = ["--device.share_gpu=true"] if ranks > 1 else []
    run(name, [weft, "train", *arguments_of(w), f"--job.dump_folder={folder}",
               f"--device.tuning={tuning}", f"--training.steps={w['steps']}", *shared])
    used = memory.stop() // ranks
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    with open(os.path.join(folder, "plan.txt")) as file:
        arena = int(re.search(r"^arena .*\((\d+) bytes\)", file.read(), re.M)[1])
    shutil.rmtree(folder)
    rows = [row for row in rows if "tokens_per_second" in row]
    return dict(tokens_per_second=rows[-1]["tokens_per_second"] / ranks, bytes=arena,
                loss=rows[-1]["loss"], used=used)


def plan_of(weft, w, *options):
    """Output of `weft plan` for the workload."""
    return subprocess.run([weft, "plan", *arguments_of(w), *options], capture_output=True, text=True,
                          check=True).stdout


def predict(weft, w, spec):
    """Seconds of a step, of its computation and of its exposed collectives; bytes of the arena and
    of all device memory."""
    text = plan_of(weft, w, f"--device.spec={spec}")

    def seconds(key):
        found = re.search(rf"^{key} +([0-9.]+) (us|ms|s)\b", text, re.M)
        return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]] if found else 0

    def count(key):
        return int(re.search(rf"^{key} .*\((\d+) bytes\)", text, re.M)[1])

    return (seconds("step time"), seconds("computing"), seconds("exposed comm"), count("arena"),
            count("device memory"))


def traffic(weft, w):
    """Bytes that the kernels of a step read and write."""
    amount, unit = re.search(r"memory traffic ([0-9.]+) (GiB|TiB)", plan_of(weft, w)).groups()
    return float(amount) * {"GiB": 1 << 30, "TiB": 1 << 40}[unit]


def modes_of(w, asked):
    """The peer's modes to measure: those of the workload unless --modes names others."""
    if asked == "all":
        from gpu_peer import MODES
        return MODES
    return (asked or w["modes"]).split(",")


def run_peer(name, modes, steps, ranks):
    """The fastest of the peer's modes. Each runs in its own processes: a mode that fails may take the
    GPU's context with it and must not affect the others."""
    rows = []
    for mode in modes:
        row, error = run_mode(name, mode, steps, ranks)
        if row is None:
            print(f"{name:10} the peer's {mode} failed: {error}", flush=True)
            continue
        rows.append(row)
        print(f"{name:10} {'':9} {row['tokens_per_second']:9.0f} {'':13} {row['bytes'] / GIB:6.2f} "
              f"{'':43} {mode}", flush=True)
    if not rows:
        sys.exit(f"{name}: all modes of the peer failed")
    return max(rows, key=lambda row: row["tokens_per_second"])


def run_mode(name, mode, steps, ranks):
    """The measurement of rank 0 of the peer, or None and the last line of its errors."""
    command = [sys.executable, os.path.join(HERE, "gpu_peer.py"), name, mode, "--steps", str(steps)]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks))
        if ranks > 1:  # as device.share_gpu does
            environment |= dict(NCCL_HOSTID=f"peer-{os.getpid()}-{rank}", NCCL_SOCKET_IFNAME="lo")
        read = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        processes.append(subprocess.Popen(command, env=environment, text=True, stdout=read, stderr=read))
    output, errors = processes[0].communicate()
    for process in processes[1:]:
        if processes[0].returncode != 0:
            process.kill()  # it would wait for rank 0
        process.wait()
    for line in output.splitlines():
        if line.startswith("{"):
            return json.loads(line), ""
    said = [line for line in errors.splitlines() if "Error" in line] or errors.splitlines() or [""]
    return None, said[-1]


def model_size(name):
    """Parameters used in matmuls, layers and width, as the peer builds them."""
    from gpu_peer import WORKLOADS as peers
    w = peers[name]
    dim, layers = w["dim"], w["layers"]
    if w["model"] == "gpt2":
        return layers * 12 * dim * dim + w["vocab"] * dim, layers, dim
    attention = dim * dim * (2 + 2 * w["kv_heads"] / w["heads"])
    return layers * (attention + 3 * dim * w["ffn"]) + w["vocab"] * dim, layers, dim


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weft", default="build-gpu/weft")
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--modes", help="modes of the peer instead of those of the workload, "
                                        "such as eager,block; or all")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--spec", help="a device spec of `weft bench --calibrate`: compare what "
                                       "`weft plan` predicts with it")
    arguments = parser.parse_args()
    if shutil.which("nvidia-smi") is None:
        sys.exit("no GPU found (there is no nvidia-smi); gpu-bench needs one")
    missed = []
    print(f"floors (FLOPs ms, bytes ms) are those of an H200: {H200_FLOPS / 1e12:.0f} TFLOP/s, "
          f"{H200_BYTES / 1e12} TB/s")
    print(f"{'workload':10} {'tok/s':>9} {'peer':>9} {'ratio':>6} {'GiB':>6} {'peer':>6} {'ratio':>6} "
          f"{'TFLOP/s':>8} {'FLOPs ms':>9} {'bytes ms':>9} {'step ms':>8}  peer mode")
    for name in arguments.only.split(","):
        w = WORKLOADS[name]
        parameters, layers, dim = model_size(name)
        tokens = w["batch"] * w["length"]
        flops = 6 * parameters + 6 * layers * dim * w["length"]
        ours = run_weft(arguments.weft, name, w)
        peer = None
        if not arguments.no_peer:
            peer = run_peer(name, modes_of(w, arguments.modes), 15, w.get("ranks", 1))
        speed = ours["tokens_per_second"]
        ratio = speed / peer["tokens_per_second"] if peer else float("nan")
        memory = ours["bytes"] / peer["bytes"] if peer else float("nan")
        floors = (flops * tokens / H200_FLOPS * 1e3,
                  traffic(arguments.weft, w) / H200_BYTES * 1e3)
        if peer and ratio < w["speed"]:
            missed.append(f"{name}: speed")
        if peer and memory > w["memory"]:
            missed.append(f"{name}: memory")
        print(f"{name:10} {speed:9.0f} {peer['tokens_per_second'] if peer else 0:9.0f} {ratio:6.3f} "
              f"{ours['bytes'] / GIB:6.2f} {peer['bytes'] / GIB if peer else 0:6.2f} {memory:6.3f} "
              f"{flops * speed / 1e12:8.1f} {floors[0]:9.2f} {floors[1]:9.2f} {tokens / speed * 1e3:8.2f}  "
              f"{peer['mode'] if peer else '-'}", flush=True)
        if arguments.spec:
            seconds, computing, exposed, arena, total = predict(arguments.weft, w, arguments.spec)
            print(f"{name:10} predicted {seconds * 1e3:.2f} ms ({seconds * speed / tokens:.3f} of "
                  f"the time taken), arena {arena / GIB:.2f} GiB ({arena / ours['bytes']:.4f} of "
                  f"what was allocated), device memory {total / GIB:.2f} GiB ({total / ours['used']:.3f} "
                  f"of the driver's {ours['used'] / GIB:.2f} GiB)", flush=True)
            if is_off(seconds, tokens / speed, STEP_TIME):
                missed.append(f"{name}: predicted step time")
            if arena != ours["bytes"]:
                missed.append(f"{name}: predicted arena")
            if is_off(total, ours["used"], DEVICE_MEMORY):
                missed.append(f"{name}: predicted device memory")
            if "ranks" in w:
                measured = tokens / speed - computing
                print(f"{name:10} exposed communication {measured * 1e3:.1f} ms, predicted "
                      f"{exposed * 1e3:.1f} ms ({exposed / measured:.3f} of it)", flush=True)
                if is_off(exposed, measured, EXPOSED_TIME):
                    missed.append(f"{name}: predicted exposed communication")
    if missed:
        sys.exit("missed: " + ", ".join(missed))


if __name__ == "__main__":
    main()
