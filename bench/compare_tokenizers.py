#!/usr/bin/env python3
"""Compares Weft's byte-pair encoder with tiktoken and Hugging Face's tokenizers: ids and speed.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tiktoken tokenizers numpy
    python3 bench/make_text.py /tmp/text.txt 100
    /tmp/venv/bin/python bench/compare_tokenizers.py build/weft GPT2_FOLDER /tmp/text.txt [--hugging-face]

GPT2_FOLDER holds encoder.json and vocab.bpe. Weft is timed as a whole command, from start to files
on disk; tiktoken by its batch call alone, on parts of the same text. Both use 2 threads and take
turns. With --hugging-face its ids are compared for the four split patterns as well.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "2"
import numpy
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK3 = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
             .replace('\\"', '"') + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
REPEATS = 3


def parts_of(text, size=1 << 18):
    """The text in parts that end between a letter and a space, where every pattern ends a word."""
    parts, begin = [], 0
    place = re.compile("[a-z](?= )")
    while begin < len(text):
        found = place.search(text, min(begin + size, len(text)))
        end = found.end() if found else len(text)
        parts.append(text[begin:end])
        begin = end
    return parts


def run_weft(weft, tokenizer, path, folder):
    start = time.time()
    subprocess.run([weft, "data", "prepare", path, "--output", folder, "--tokenizer", tokenizer,
                    "--validation-fraction", "0", "--threads", "2"], check=True,
                   stdout=subprocess.DEVNULL)
    seconds = time.time() - start
    return numpy.fromfile(folder + "/train.bin", dtype=numpy.uint16), seconds


def compare(name, ours, theirs):
    same = len(ours) == len(theirs) and bool((ours == theirs).all())
    print(f"{name}: {len(ours)} ids, {'equal' if same else 'DIFFERENT'}", flush=True)
    return same


def hugging_face(folder, name, regexes, nfc):
    vocabulary = json.load(open(folder + "/encoder.json", encoding="utf-8"))
    lines = open(folder + "/vocab.bpe", encoding="utf-8").read().split("\n")[1:-1]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(l.split(" ")) for l in lines]))
    stages = [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes]
    stages.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not regexes))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages) if regexes else stages[0]
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    path = os.path.join(tempfile.gettempdir(), f"weft_bench_{name}.json")
    tokenizer.save(path)
    tokenizer.encode_special_tokens = True
    return tokenizer, path


def main():
    weft, folder, path = sys.argv[1:4]
    text = open(path, encoding="utf-8", newline="").read()
    size = os.path.getsize(path) / 1e6
    parts = parts_of(text)
    ranks = data_gym_to_mergeable_bpe_ranks(folder + "/vocab.bpe", folder + "/encoder.json")
    encoding = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks,
                                 special_tokens={"<|endoftext|>": 50256})
    good = True
    best = {"weft": 1e9, "tiktoken": 1e9}
    with tempfile.TemporaryDirectory() as output:
        for _ in range(REPEATS):
            ours, seconds = run_weft(weft, folder, path, output)
            best["weft"] = min(best["weft"], seconds)
            start = time.time()
            batches = encoding.encode_ordinary_batch(parts, num_threads=2)
            best["tiktoken"] = min(best["tiktoken"], time.time() - start)
        theirs = numpy.concatenate([numpy.array(b, dtype=numpy.uint16) for b in batches])
        good &= compare("gpt2, tiktoken " + tiktoken.__version__, ours, theirs)
        good &= encoding.decode_bytes(ours.tolist()) == text.encode()
        print("decoded text:", "equal" if good else "DIFFERENT")
        for name, seconds in best.items():
            print(f"{name}: {seconds:.2f} s, {size / seconds:.1f} MB/s")
        print(f"weft / tiktoken: {best['tiktoken'] / best['weft']:.2f}")
        if "--hugging-face" in sys.argv:
            for name, regexes, nfc in (("gpt2", [], False), ("llama3", [LLAMA3], False),
                                       ("qwen2", [QWEN2], True), ("deepseek3", DEEPSEEK3, False)):
                tokenizer, file = hugging_face(folder, name, regexes, nfc)
                ours, _ = run_weft(weft, file, path, output)
                theirs = numpy.concatenate(
                    [numpy.array(e.ids, dtype=numpy.uint16)
                     for e in tokenizer.encode_batch(parts, add_special_tokens=False)])
                good &= compare(f"{name}, tokenizers", ours, theirs)
    sys.exit(0 if good else 1)


main()
