"""The PyTorch side of `make bench`: the same model, data, optimizer and initial weights as Weft's run.

Reads one JSON object from the command line, builds the model, prints {"ready": ...}, and then runs as
many optimizer steps as each line on stdin says, printing one JSON line for them; "gemm" instead asks for
the rate of the library's matmul. With "world" > 1 the model is sharded by FSDP2 over gloo, one
process per rank, and rank 0 prints.
"""
import json
import os
import resource
import struct
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class GPT2Block(nn.Module):
    def __init__(self, dim, heads, bias):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(dim, bias=bias)
        self.c_attn = nn.Linear(dim, 3 * dim, bias=bias)
        self.c_proj = nn.Linear(dim, dim, bias=bias)
        self.ln_2 = nn.LayerNorm(dim, bias=bias)
        self.c_fc = nn.Linear(dim, 4 * dim, bias=bias)
        self.c_out = nn.Linear(4 * dim, dim, bias=bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.wte = nn.Embedding(s["vocab"], s["dim"])
        self.wpe = nn.Embedding(s["max_seq_len"], s["dim"])
        self.blocks = nn.ModuleList(GPT2Block(s["dim"], s["heads"], s["bias"]) for _ in range(s["layers"]))
        self.ln_f = nn.LayerNorm(s["dim"], bias=s["bias"])

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def hf_names(self):
        """Our parameter -> (name in a Hugging Face file, stored transposed)."""
        names = {"wte.weight": ("wte.weight", False), "wpe.weight": ("wpe.weight", False)}
        parts = {"ln_1": "ln_1", "c_attn": "attn.c_attn", "c_proj": "attn.c_proj", "ln_2": "ln_2",
                 "c_fc": "mlp.c_fc", "c_out": "mlp.c_proj"}
        for i in range(len(self.blocks)):
            for ours, theirs in parts.items():
                names[f"blocks.{i}.{ours}.weight"] = (f"h.{i}.{theirs}.weight", not ours.startswith("ln"))
                names[f"blocks.{i}.{ours}.bias"] = (f"h.{i}.{theirs}.bias", False)
        names["ln_f.weight"] = ("ln_f.weight", False)
        names["ln_f.bias"] = ("ln_f.bias", False)
        return names


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        dim, self.heads, self.kv_heads = s["dim"], s["heads"], s["kv_heads"]
        self.head_dim = dim // self.heads
        self.norm_1 = nn.RMSNorm(dim, eps=s["norm_eps"])
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, self.kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(dim, self.kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.norm_2 = nn.RMSNorm(dim, eps=s["norm_eps"])
        self.gate = nn.Linear(dim, s["ffn"], bias=False)
        self.up = nn.Linear(dim, s["ffn"], bias=False)
        self.down = nn.Linear(s["ffn"], dim, bias=False)

    def rotate(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        y = self.norm_1(x)
        q = self.rotate(self.q(y).view(b, t, self.heads, -1).transpose(1, 2), cos, sin)
        k = self.rotate(self.k(y).view(b, t, self.kv_heads, -1).transpose(1, 2), cos, sin)
        v = self.v(y).view(b, t, self.kv_heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s["vocab"], s["dim"])
        self.blocks = nn.ModuleList(LlamaBlock(s) for _ in range(s["layers"]))
        self.norm = nn.RMSNorm(s["dim"], eps=s["norm_eps"])
        self.head = nn.Linear(s["dim"], s["vocab"], bias=False)
        half = s["dim"] // s["heads"] // 2
        angles = torch.outer(torch.arange(s["seq_len"]).double(),
                             s["rope_theta"] ** (-torch.arange(half).double() / half))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

    def hf_names(self):
        names = {"embed.weight": ("model.embed_tokens.weight", False), "norm.weight": ("model.norm.weight", False),
                 "head.weight": ("lm_head.weight", False)}
        parts = {"norm_1": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
                 "v": "self_attn.v_proj", "o": "self_attn.o_proj", "norm_2": "post_attention_layernorm",
                 "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
        for i in range(len(self.blocks)):
            for ours, theirs in parts.items():
                names[f"blocks.{i}.{ours}.weight"] = (f"model.layers.{i}.{theirs}.weight", False)
        return names


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4,
                                         offset=begin).reshape(entry["shape"])
    return tensors


def load_weights(model, path):
    stored = read_safetensors(path)
    stored.update({name.removeprefix("transformer."): value for name, value in list(stored.items())})
    names = model.hf_names()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs, transposed = names[name]
            value = stored[theirs]
            parameter.copy_(value.T if transposed else value)


def resident():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def gemm_rate():
    """GFLOP/s of the library's matmul at GPT-2's largest layer, best of several."""
    a, b = torch.rand(1024, 768), torch.rand(3072, 768)
    best = 1e9
    for _ in range(20):
        start = time.perf_counter()
        torch.mm(a, b.t())
        best = min(best, time.perf_counter() - start)
    return 2e-9 * 1024 * 768 * 3072 / best


def shard(model):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main():
    run = json.loads(sys.argv[1])
    torch.set_num_threads(run["threads"])
    world, rank = run.get("world", 1), int(os.environ.get("RANK", 0))
    before = resident()
    model = {"gpt2": GPT2, "llama": Llama}[run["model"]["family"]](run["model"])
    load_weights(model, run["weights"])
    if world > 1:
        shard(model)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=run["lr"], betas=(0.9, 0.95), eps=1e-8, fused=True)
    step_loss = torch.compile(model) if run["mode"] == "compile" else model
    with open(run["tokens"], "rb") as file:
        row = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long()
    batch = run["batch"] // world
    tokens = row[:-1].repeat(batch, 1)
    targets = row[1:].repeat(batch, 1)
    if rank == 0:
        print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        if line.strip() == "gemm":
            if rank == 0:
                print(json.dumps({"gemm_gflops": gemm_rate()}), flush=True)
            continue
        losses, seconds = [], []
        for _ in range(int(line)):
            start = time.perf_counter()
            loss = step_loss(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
        growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        if rank == 0:
            print(json.dumps({"losses": losses, "seconds": seconds, "growth": growth}), flush=True)


if __name__ == "__main__":
    main()
