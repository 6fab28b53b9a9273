"""bpe.py FOLDER EXPECTED [N SEED]: trains small tokenizers of the kinds that GPT-2, LLaMA 2 and 3 and others
use, as FOLDER/NAME.json, and writes what Hugging Face's tokenizers make of texts that are hard for them: lines [NAME,
text, ids, text of the ids] of JSON. N: so many random texts for each instead.

Needs: pip install tokenizers"""
import json, random, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = ("the quick brown fox jumps over lazy dogs naïve café übermäßig Hello WORLD don't we'll I'm it's 12345 3.14 67 "
         "日本語 テスト 안녕 привет мир Ελλάδα emoji 😀 a b c  tab\t new\n line").split(" ")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
PIECES = ["the", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "don't", "WE'LL", "'S", "12", "3456789", "½", "Ⅷ",
          "٣", "日本", "テ", "한", "e\u0301", "é", "\u0301", "Å", "😀", "👩‍👩‍👧", "\x00", "\x7f", "\u200b", "\ufeff", "▁",
          "▁▁", "<|end|>", "<|begin|>", "<|end", "<x>", "<xy>", "MASK", " MASK ", "fox", "foxy", "_fox", "<s>",
          "</s>",
          "<unk>", "<sep>", " <sep>  ", "<0x41>", "a" * 50, "xyzzy", "Ελλ", "ß", "ǅ", "\u0e33", "\u1e9b\u0323", "!!",
          "...", "—", "$€", "?", "\x85", "\u2028", "\x1c", "\x0b"]
rng = random.Random(5)
corpus = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 40))) for _ in range(1000)]
BYTES = [f"<0x{i:02X}>" for i in range(256)]

def train(t, size, special, alphabet=()):
    t.train_from_iterator(corpus, trainers.BpeTrainer(show_progress=False, vocab_size=size, special_tokens=special,
                                                      initial_alphabet=list(alphabet), limit_alphabet=300))
    return t

def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return train(t, 330, ["<|end|>"], pre_tokenizers.ByteLevel.alphabet())

def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, 330, ["<|begin|>", "<|end|>"], pre_tokenizers.ByteLevel.alphabet())
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])])
    t.add_tokens([AddedToken("MASK", lstrip=True, rstrip=True), AddedToken("fox", single_word=True),
                  AddedToken("<x>", normalized=False), AddedToken("<xy>", normalized=False)])
    return t

def llama2():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    train(t, 400, ["<unk>", "<s>", "</s>"] + BYTES)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None                             # LLaMA 2 has none; training needs words
    return Tokenizer.from_str(json.dumps(j))

def metaspace():
    t = Tokenizer(models.BPE(byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    train(t, 400, ["<s>"] + BYTES)
    t.add_special_tokens([AddedToken("<sep>", rstrip=True)])
    return t

def digits():
    t = Tokenizer(models.BPE(unk_token="?"))
    t.normalizer, t.decoder = normalizers.NFC(), decoders.ByteLevel()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=True)])
    return train(t, 330, ["?"], pre_tokenizers.ByteLevel.alphabet())

def splits():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s"), "removed"), pre_tokenizers.Split(Regex("[aeiou]"), "merged_with_previous"),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[x-z]+"), "contiguous",
                                                                             invert=True)])
    return train(t, 120, ["<unk>"])

def text(r):
    return "".join(r.choice(PIECES) if r.random() < .85 else chr(r.choice([
        r.randrange(32, 127), r.randrange(0x80, 0x530), r.randrange(0x1000, 0xa000), r.randrange(0x1f300, 0x1f600)]))
        for _ in range(r.choice([0, 1, 2, 5, 20])))

folder, expected = sys.argv[1:3]
n, seed = (int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (25, 3)
with open(expected, "w") as out:
    for make in gpt2, llama3, llama2, metaspace, digits, splits:
        t, r = make(), random.Random(seed)
        with open(f"{folder}/{make.__name__}.json", "w") as f:
            json.dump(json.loads(t.to_str()), f, ensure_ascii=True, separators=(",", ":"))
            f.write("\n")
        for x in (text(r) for _ in range(n)):
            ids = t.encode(x).ids
            print(json.dumps([make.__name__, x, ids, t.decode(ids)]), file=out)
