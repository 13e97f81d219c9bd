#!/usr/bin/env python3
"""Compares Weft's byte-pair encoder with tiktoken and Hugging Face's tokenizers: ids and speed.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install tiktoken tokenizers transformers numpy unicodedata2
    python3 bench/make_text.py /tmp/text.txt 100
    /tmp/venv/bin/python bench/compare_tokenizers.py build/weft GPT2_FOLDER /tmp/text.txt [--hugging-face]

GPT2_FOLDER holds encoder.json and vocab.bpe. Weft is timed as a complete command, from start to files
on disk; tiktoken by its calls alone, on parts of the same text: the batch call that returns lists,
and the one that returns arrays, where it has that. Each uses 2 threads; they take turns, and
tiktoken's faster call counts. With --hugging-face its ids are compared as well: for each split pattern, with a space put
before every document, with added tokens of every flag, and for a tokenizer that Weft trained. Its NFC knows Unicode 9, Weft's
Unicode 16: characters that differ are left out of the text for the one pattern that uses NFC.
"""
import base64
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

THREADS = 2
os.environ["RAYON_NUM_THREADS"] = str(THREADS)
import numpy
import tiktoken
import unicodedata2
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK3 = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
             .replace('\\"', '"') + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
WORD = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
O200K = (WORD % ("*", "+") + "|" + WORD % ("+", "*") +
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
FLAGGED = [AddedToken("[L]", lstrip=True, normalized=False),
           AddedToken("[R]", rstrip=True, normalized=False),
           AddedToken("[LR]", lstrip=True, rstrip=True, normalized=True),
           AddedToken("it", single_word=True, normalized=False),
           AddedToken("as", single_word=True, normalized=True),
           AddedToken("e\u0301!", normalized=True), AddedToken("\u00e9 x", normalized=True),
           AddedToken("e\u0301?", normalized=False), AddedToken("<e>", special=True, normalized=True)]
# Text around the tokens above that affects them: their own texts, spaces, word characters, marks.
FRAGMENTS = ["[L]", "[R]", "[LR]", "it", "as", "e\u0301!", "\u00e9!", "e\u0301?", "\u00e9?", "\u00e9 x",
          "e\u0301 x", "<e>", " ", "  ", "\n", "\u00a0", "\u3000", "word", " word", "s", "12", "_", "-",
          ", ", "\u00b2", "\u00bd", "\u203f", "\u200d", "\u200b", "\u0301", "\u24b6", "\u00b7"]
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


def run_weft(weft, tokenizer, path, folder, *options):
    start = time.time()
    subprocess.run([weft, "data", "prepare", path, "--output", folder, "--tokenizer", tokenizer,
                    "--validation-fraction", "0", "--threads", str(THREADS), *options], check=True,
                   stdout=subprocess.DEVNULL)
    seconds = time.time() - start
    return numpy.fromfile(folder + "/train.bin", dtype=numpy.uint16), seconds


def compare(name, ours, theirs):
    theirs = numpy.concatenate([numpy.array(ids, dtype=numpy.uint16) for ids in theirs])
    same = len(ours) == len(theirs) and bool((ours == theirs).all())
    print(f"{name}: {len(ours)} ids, {'equal' if same else 'DIFFERENT'}", flush=True)
    return same


def hugging_face(folder, name, regexes, nfc=False, prefix_space=False):
    vocabulary = json.load(open(folder + "/encoder.json", encoding="utf-8"))
    lines = open(folder + "/vocab.bpe", encoding="utf-8").read().split("\n")[1:-1]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(l.split(" ")) for l in lines]))
    stages = [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes]
    stages.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=not regexes))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages) if regexes else stages[0]
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    path = os.path.join(tempfile.gettempdir(), f"weft_bench_{name}.json")
    tokenizer.save(path)
    return path


def hugging_face_ids(path, texts):
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    for i in range(0, len(texts), 16):  # each of its ids takes a hundred bytes
        for encoding in tokenizer.encode_batch(texts[i:i + 16], add_special_tokens=False):
            yield numpy.array(encoding.ids, dtype=numpy.uint16)


def without_new_marks(text):
    """The text without characters that the two versions of NFC treat differently next to marks."""
    theirs = normalizers.NFC()

    def differs(c):
        probes = (c, "a" + c + "\u0334", "a\u0301" + c, "a" + c + "\u0345", "a\u0345" + c)
        return any(theirs.normalize_str(p) != unicodedata2.normalize("NFC", p) for p in probes)

    return text.translate({ord(c): None for c in set(text) if differs(c)})


def compare_hugging_face(weft, folder, path, parts, output):
    good = True
    patterns = (("gpt2", []), ("llama3", [LLAMA3]), ("qwen2", [QWEN2]), ("deepseek3", DEEPSEEK3),
                ("o200k", [O200K]))
    for name, regexes in patterns:
        file = hugging_face(folder, name, regexes)
        ours, _ = run_weft(weft, file, path, output)
        good &= compare(f"{name}, tokenizers", ours, hugging_face_ids(file, parts))
    old = without_new_marks("".join(parts))
    with open(output + "/old.txt", "w", encoding="utf-8", newline="") as file:
        file.write(old)
    file = hugging_face(folder, "nfc", [QWEN2], nfc=True)
    ours, _ = run_weft(weft, file, output + "/old.txt", output + "/nfc")
    good &= compare("qwen2 with NFC, tokenizers", ours, hugging_face_ids(file, parts_of(old)))
    documents = [part.lstrip(" ") for part in parts]
    lines = output + "/documents.jsonl"
    with open(lines, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    file = hugging_face(folder, "prefix", [], prefix_space=True)
    ours, _ = run_weft(weft, file, lines, output + "/prefix", "--end-token", "none")
    good &= compare("gpt2 with add_prefix_space, tokenizers", ours,
                    hugging_face_ids(file, documents))
    good &= compare_flagged(weft, folder, output)
    file = output + "/trained.json"
    subprocess.run([weft, "data", "train-tokenizer", path, "--vocab-size", "8192", "--output", file],
                   check=True, stdout=subprocess.DEVNULL)
    ours, _ = run_weft(weft, file, path, output)
    good &= compare("trained by Weft, tokenizers", ours, hugging_face_ids(file, parts))
    from transformers import PreTrainedTokenizerFast
    opened = PreTrainedTokenizerFast(tokenizer_file=file)
    short = parts[0][:10000]
    good &= opened.decode(opened.encode(short), clean_up_tokenization_spaces=False) == short
    print("trained by Weft, opened by transformers:", opened.vocab_size, "ids")
    return good


def compare_flagged(weft, folder, output):
    """Added tokens of every flag, under NFC and ignore_merges, in lines and in one long text."""
    file = hugging_face(folder, "flagged", [LLAMA3], nfc=True)
    tokenizer = Tokenizer.from_file(file)
    tokenizer.add_tokens([t for t in FLAGGED if not t.special])
    tokenizer.add_special_tokens([t for t in FLAGGED if t.special])
    tokenizer.model.ignore_merges = True
    tokenizer.save(file)
    draw = random.Random(1)
    documents = ["".join(draw.choices(FRAGMENTS, k=30)) for _ in range(20000)]
    with open(output + "/flagged.jsonl", "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    text = "".join(draw.choices(FRAGMENTS, k=1000000))
    with open(output + "/flagged.txt", "w", encoding="utf-8", newline="") as file:
        file.write(text)
    good = True
    for name, texts in (("flagged.jsonl", documents), ("flagged.txt", [text])):
        ours, _ = run_weft(weft, file, f"{output}/{name}", output + "/flagged", "--end-token", "none")
        good &= compare(f"added tokens of every flag, {name}, tokenizers", ours,
                        hugging_face_ids(file, texts))
    return good


def tiktoken_calls(encoding):
    """Its ways to encode parts of a text on THREADS threads, by name."""
    calls = {"encode_ordinary_batch":
             lambda parts: encoding.encode_ordinary_batch(parts, num_threads=THREADS)}
    if hasattr(encoding, "encode_to_numpy"):
        def arrays(parts):
            with ThreadPoolExecutor(THREADS) as pool:
                return list(pool.map(
                    lambda part: encoding.encode_to_numpy(part, disallowed_special=()), parts))
        calls["encode_to_numpy"] = arrays
    return calls


def compare_o200k(weft, ranks, path, parts, output):
    encoding = tiktoken.Encoding("o200k", pat_str=O200K, mergeable_ranks=ranks, special_tokens={})
    file = output + "/ranks.tiktoken"
    with open(file, "w", encoding="ascii") as lines:
        lines.writelines(f"{base64.b64encode(token).decode()} {rank}\n"
                         for token, rank in ranks.items())
    ours, _ = run_weft(weft, file, path, output, "--split", "o200k", "--end-token", "none")
    return compare("o200k, tiktoken", ours, encoding.encode_ordinary_batch(parts, num_threads=THREADS))


def main():
    weft, folder, path = sys.argv[1:4]
    text = open(path, encoding="utf-8", newline="").read()
    size = os.path.getsize(path) / 1e6
    parts = parts_of(text)
    ranks = data_gym_to_mergeable_bpe_ranks(folder + "/vocab.bpe", folder + "/encoder.json")
    encoding = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks,
                                 special_tokens={"<|endoftext|>": 50256})
    calls = tiktoken_calls(encoding)
    best = dict.fromkeys(["weft", *calls], float("inf"))
    good = True
    with tempfile.TemporaryDirectory() as output:
        for repeat in range(REPEATS):
            ours, seconds = run_weft(weft, folder, path, output)
            best["weft"] = min(best["weft"], seconds)
            for name, call in calls.items():
                start = time.time()
                batches = call(parts)
                best[name] = min(best[name], time.time() - start)
                if repeat == 0:
                    good &= compare(f"gpt2, tiktoken {tiktoken.__version__} {name}", ours, batches)
                del batches  # a list of ids takes more memory than the text
        good &= encoding.decode_bytes(ours.tolist()) == text.encode()
        print("decoded text:", "equal" if good else "DIFFERENT")
        for name, seconds in best.items():
            print(f"{name}: {seconds:.2f} s, {size / seconds:.1f} MB/s")
        print(f"weft / tiktoken: {min(best[name] for name in calls) / best['weft']:.2f}")
        good &= compare_o200k(weft, ranks, path, parts, output)
        if "--hugging-face" in sys.argv:
            good &= compare_hugging_face(weft, folder, path, parts, output)
    sys.exit(0 if good else 1)


main()
