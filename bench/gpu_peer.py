"""What PyTorch reaches on the workloads of bench/gpu_bench.py: plain modules, scaled dot-product
attention, bf16 autocast over fp32 weights, fused AdamW, clipping at 1.0, in one of several modes. Prints a JSON line; `tokens_per_second` is the median of the timed steps, `bytes` is
torch.cuda.max_memory_allocated()."""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORKLOADS = {
    "gpt2-64": dict(model="gpt2", vocab=50304, dim=768, layers=12, heads=12, batch=64, length=1024),
    "gpt2-32": dict(model="gpt2", vocab=50304, dim=768, layers=12, heads=12, batch=32, length=1024),
    "llama-1b": dict(model="llama", vocab=128256, dim=2048, layers=16, heads=32, kv_heads=8,
                     ffn=8192, batch=2, length=8192),
    "llama-3b": dict(model="llama", vocab=128256, dim=3072, layers=28, heads=24, kv_heads=8,
                     ffn=8192, batch=1, length=8192, recompute=True, fsdp=True),
    "llama-200m": dict(model="llama", vocab=32000, dim=1024, layers=12, heads=16, kv_heads=8,
                       ffn=2816, batch=4, length=1024, fsdp=True),
}
MODES = ["eager", "block", "full", "max-autotune", "reduce-overhead"]


class Gpt2Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.heads = w["heads"]
        self.norm1 = nn.LayerNorm(w["dim"])
        self.qkv = nn.Linear(w["dim"], 3 * w["dim"])
        self.out = nn.Linear(w["dim"], w["dim"])
        self.norm2 = nn.LayerNorm(w["dim"])
        self.up = nn.Linear(w["dim"], 4 * w["dim"])
        self.down = nn.Linear(4 * w["dim"], w["dim"])

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.tokens = nn.Embedding(w["vocab"], w["dim"])
        self.positions = nn.Embedding(w["length"], w["dim"])
        self.blocks = nn.ModuleList(Gpt2Block(w) for _ in range(w["layers"]))
        self.norm = nn.LayerNorm(w["dim"])
        self.head = nn.Linear(w["dim"], w["vocab"], bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def rotate(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.heads, self.kv_heads = w["heads"], w["kv_heads"]
        self.head_dim = w["dim"] // w["heads"]
        width = (w["heads"] + 2 * w["kv_heads"]) * self.head_dim
        self.norm1 = nn.RMSNorm(w["dim"])
        self.qkv = nn.Linear(w["dim"], width, bias=False)
        self.out = nn.Linear(w["dim"], w["dim"], bias=False)
        self.norm2 = nn.RMSNorm(w["dim"])
        self.gate_up = nn.Linear(w["dim"], 2 * w["ffn"], bias=False)
        self.down = nn.Linear(w["ffn"], w["dim"], bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        parts = [n * self.head_dim for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = self.qkv(self.norm1(x)).split(parts, dim=-1)
        q, k, v = (z.view(b, t, -1, self.head_dim).transpose(1, 2) for z in (q, k, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.recompute = w.get("recompute", False)
        self.tokens = nn.Embedding(w["vocab"], w["dim"])
        self.blocks = nn.ModuleList(LlamaBlock(w) for _ in range(w["layers"]))
        self.norm = nn.RMSNorm(w["dim"])
        self.head = nn.Linear(w["dim"], w["vocab"], bias=False)
        d = w["dim"] // w["heads"]
        frequency = 500000.0 ** (-torch.arange(0, d, 2).double() / d)
        angle = torch.outer(torch.arange(w["length"]).double(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angle.sin().bfloat16(), persistent=False)

    def forward(self, ids, targets):
        x = self.tokens(ids).bfloat16()
        for block in self.blocks:
            if self.recompute:
                x = torch.utils.checkpoint.checkpoint(block, x, self.cos, self.sin,
                                                      use_reentrant=False)
            else:
                x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def prepare(model, mode):
    if mode == "block":
        for block in model.blocks:
            block.compile()
    elif mode == "full":
        model.compile()
    elif mode != "eager":
        model.compile(mode=mode)


def shard(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def measure(w, mode, steps):
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = {"gpt2": Gpt2, "llama": Llama}[w["model"]](w)
    if w.get("fsdp"):
        shard(model)
    prepare(model, mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, w["vocab"], (w["batch"], w["length"] + 1), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(3 + steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=not w.get("fsdp")):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[3:])
    return dict(mode=mode, seconds=seconds, bytes=torch.cuda.max_memory_allocated(),
                tokens_per_second=w["batch"] * w["length"] / seconds, loss=float(loss))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU found; this measures PyTorch on one")
    torch.set_float32_matmul_precision("high")
    w = WORKLOADS[arguments.workload]
    if w.get("fsdp"):
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        torch.cuda.set_device(0)
        torch.distributed.init_process_group("nccl", rank=rank, world_size=ranks)
    print(json.dumps(measure(w, arguments.mode, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
