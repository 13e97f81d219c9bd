#!/usr/bin/env python3
"""Opens Weft's checkpoints with Hugging Face's transformers and compares losses, text and bits.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch transformers safetensors
    /tmp/venv/bin/python bench/compare_transformers.py build/weft

Small models are trained for 300 steps on the text of this repository. transformers opens each
checkpoint and computes the loss of the same validation tokens as `weft train` and `weft eval`.
Then random models saved by transformers go through `weft export` and `weft train`; their
tensors must keep their bits.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import safetensors
import torch
import transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig

LENGTH = 64
VALIDATION_STEPS = 16
LOSS_TOLERANCE = 1e-6  # relative, between two f32 programs
PRINTED = 6e-5         # weft eval prints four digits
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SIZES = ["--model.dim=64", "--model.n_layers=2", "--model.n_heads=4", f"--model.max_seq_len={LENGTH}"]
FAMILIES = {
    "gpt2": ["--model.name=gpt2", "--model.flavor=tiny", "--model.dropout=0.0", *SIZES],
    "llama": ["--model.name=llama", "--model.flavor=debug", "--model.n_kv_heads=2", "--model.ffn_dim=160", *SIZES],
}
failures = 0


def report(what, passed, text):
    global failures
    failures += not passed
    print(f"{'ok' if passed else 'FAILED':6}  {what:58}  {text}", flush=True)


class Weft:
    def __init__(self, binary, folder):
        self.binary, self.folder = os.path.abspath(binary), folder
        texts = sorted(glob.glob("docs/*.md"))
        self("data", "prepare", *texts, "--output", self.path("data"), "--tokenizer", "char")
        with open(self.path("empty.toml"), "w") as file:
            file.write("[training]\nsteps = 300\n")

    def __call__(self, *arguments):
        done = subprocess.run([self.binary, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"weft {' '.join(arguments)}: exit code {done.returncode}: {done.stderr}")
        return done.stdout

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, name, ranks, *options):
        """Trains and returns the folder of the last checkpoint and the validation loss."""
        self("train", self.path("empty.toml"), "--ranks", str(ranks), f"--job.dump_folder={self.path(name)}",
             "--training.dataset=file", f"--training.dataset_path={self.path('data/train.bin')}",
             f"--training.seq_len={LENGTH}", "--training.local_batch_size=4", "--optimizer.lr=3e-3",
             "--lr_scheduler.warmup_steps=2", "--validation.enable=true",
             f"--validation.dataset_path={self.path('data/val.bin')}", f"--validation.steps={VALIDATION_STEPS}", *options)
        with open(os.path.join(self.path(name), "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        loss = [line["validation_loss"] for line in lines if "validation_loss" in line][-1]
        return [line["checkpoint"] for line in lines if "checkpoint" in line][-1], loss

    def eval(self, folder):
        text = self("eval", folder, self.path("data/val.bin"), "--seq-len", str(LENGTH))
        return float(re.match(r"loss ([0-9.]+) ", text)[1])


def window_losses(model, tokens):
    """The mean loss of every window of LENGTH tokens."""
    ids = torch.frombuffer(bytearray(tokens), dtype=torch.uint16).long()
    windows = (len(ids) - 1) // LENGTH
    inputs = ids[:windows * LENGTH].view(windows, LENGTH)
    targets = ids[1:windows * LENGTH + 1].view(windows, LENGTH)
    losses = []
    with torch.no_grad():
        for first in range(0, windows, 64):
            logits = model(inputs[first:first + 64]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[first:first + 64].flatten(),
                                                     reduction="none")
            losses.append(loss.view(-1, LENGTH).double().mean(1))
    return torch.cat(losses)


def open_model(folder):
    # The weights as they are stored, the computation in f32 as in `weft eval`.
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    # A parameter that Weft does not have, such as a bias, would be random: none may be missing.
    absent = [key for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in info[kind]]
    if absent:
        report(folder, False, f"missing or unexpected: {absent}")
    return model.eval()


def compare_loss(weft, what, folder, ranks=0, trained=None):
    with open(weft.path("data/val.bin"), "rb") as file:
        losses = window_losses(open_model(folder), file.read())
    theirs, ours = losses.mean().item(), weft.eval(folder)
    text = f"loss {theirs:.7f}, weft eval {ours:.4f}"
    passed = abs(theirs - ours) <= PRINTED
    if trained is not None:
        theirs = losses[:VALIDATION_STEPS * 4 * ranks].mean().item()
        difference = abs(trained - theirs) / theirs
        text += f"; of validation in training {theirs:.7f}, weft {trained:.7f} ({difference:.1e})"
        passed = passed and difference <= LOSS_TOLERANCE
    report(what, passed, text)


def compare_text(weft, what, folder):
    prompt, count = "the ", 40
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        ids = open_model(folder).generate(input_ids=inputs["input_ids"], do_sample=False, max_new_tokens=count,
                                          min_new_tokens=count, pad_token_id=0)
    theirs = tokenizer.decode(ids[0])
    ours = weft("generate", folder, "--prompt", prompt, "--tokens", str(count), "--temperature", "0")
    report(what, theirs == ours.removesuffix("\n"), f"{count} greedy tokens: {theirs!r}")


def read_tensors(folder):
    tensors = {}
    for path in glob.glob(os.path.join(folder, "model*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors.update({name: file.get_tensor(name) for name in file.keys()})
    return tensors


def same_bits(what, before, after, dtype):
    """Every tensor of `before`, converted to the type, must be in `after`, and nothing else."""
    differ = [name for name in before if name not in after or after[name].dtype != dtype or
              not torch.equal(before[name].to(dtype), after[name])]
    passed = not differ and set(before) == set(after)
    report(what, passed, f"{len(before)} tensors" + (f"; {len(differ)} differ: {differ[:3]}" if differ else "") +
           (f"; only after: {sorted(set(after) - set(before))[:3]}" if set(after) - set(before) else ""))


def check_checkpoints(weft):
    for family, options in FAMILIES.items():
        saved, loss = weft.train(f"{family}1", 1, *options)
        compare_loss(weft, f"{family}, 1 rank", saved, 1, loss)
        compare_text(weft, f"{family}, text", saved)
        saved, loss = weft.train(f"{family}2", 2, "--checkpoint.max_file_bytes=100000", *options)
        parts = len(glob.glob(os.path.join(saved, "model-*.safetensors")))
        compare_loss(weft, f"{family}, 2 ranks, {parts} files", saved, 2, loss)
        saved, _ = weft.train(f"{family}2_bf16", 2, "--checkpoint.export_dtype=bfloat16", *options)
        compare_loss(weft, f"{family}, 2 ranks, export_dtype bfloat16", saved)
        # In their own type, which transformers takes from config.json.
        dtype = AutoModelForCausalLM.from_pretrained(saved, dtype="auto").dtype
        report(f"{family}, dtype=\"auto\"", dtype == torch.bfloat16, str(dtype))
        for dtype in ("float32", "bfloat16"):
            to = weft.path(f"{family}_exported_{dtype}")
            weft("export", weft.path(f"{family}2"), to, "--dtype", dtype)
            compare_loss(weft, f"{family}, weft export --dtype {dtype}", to)


def random_models(folder):
    torch.manual_seed(1)
    common = dict(vocab_size=300, bos_token_id=1, eos_token_id=2)
    llama = dict(common, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=LENGTH)
    configs = {"llama": LlamaConfig(**llama), "llama_tied": LlamaConfig(**llama, tie_word_embeddings=True),
               "gpt2": GPT2Config(**common, n_embd=64, n_layer=2, n_head=4, n_positions=LENGTH)}
    for name, config in configs.items():
        for dtype in DTYPES:
            path = os.path.join(folder, f"{name}_{dtype}")
            model = AutoModelForCausalLM.from_config(config)
            with torch.no_grad():  # norms and biases too, so that no two are alike
                for parameter in model.parameters():
                    parameter.normal_(std=0.1)
            model.to(DTYPES[dtype]).save_pretrained(path, max_shard_size="100KB")
            yield name, dtype, path


def check_round_trips(weft):
    for name, dtype, path in random_models(weft.folder):
        before = read_tensors(path)
        files = len(glob.glob(os.path.join(path, "*.safetensors")))
        for to in ["float32"] + ["bfloat16"] * (dtype == "bfloat16"):
            exported = f"{path}_to_{to}"
            weft("export", path, exported, "--dtype", to, "--max-file-bytes", "90000")
            same_bits(f"{name} in {dtype}, {files} files, weft export to {to}", before, read_tensors(exported), DTYPES[to])
        # One step at rate 0 on two ranks changes nothing.
        family = name.split("_")[0]
        weft("train", weft.path("empty.toml"), "--ranks", "2", f"--job.dump_folder={path}_run", "--training.steps=1",
             f"--model.name={family}", f"--model.flavor={path}/", f"--checkpoint.initial_load_path={path}",
             "--optimizer.lr=0", f"--training.seq_len={LENGTH}", "--training.local_batch_size=1")
        same_bits(f"{name} in {dtype}, weft train on 2 ranks at rate 0", before,
                  read_tensors(f"{path}_run/checkpoints/step-1"), torch.float32)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, safetensors {safetensors.__version__}")
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        weft = Weft(sys.argv[1], folder)
        check_checkpoints(weft)
        check_round_trips(weft)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
