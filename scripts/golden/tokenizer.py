"""Writes tests/golden/tokenizer: small BPE tokenizers, and how `tokenizers` reads texts.

    python scripts/golden/tokenizer.py [--qwen2 DIR] [--pieces]
                                                            (tokenizers 0.23, transformers 5.17)

--pieces: the SentencePiece-style ones alone. Their tokenizer.json are the three published forms
(Gemma; Llama 2; Mistral v0.3) over small vocabularies, and are read where they lie; NAME_small.json
is from another program and stays, NAME_texts.json is written.

DIR holds Qwen2's published tokenizer; models/qwen2-tokenizer by default. SmolLM2's is in
models/SmolLM2-135M-Instruct. These two get cases too where their directory exists; where it does
not, the cases stay as they are. The layout of the files is described in tests/golden/README.md.
"""

import argparse
import json
import pathlib
import random
import shutil
import unicodedata

import tokenizers
import transformers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

REPO = pathlib.Path(__file__).resolve().parents[2]
ROOT = REPO / "tests/golden/tokenizer"
# Where the tests look for the published tokenizers, from the root of the repository.
REAL = {"smollm2": "models/SmolLM2-135M-Instruct", "qwen2_real": "models/qwen2-tokenizer"}
SEED = 20260118

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

CORPUS = """
The quick brown fox jumps over the lazy dog. It's what they've said, and I'm sure we'll \
see that you're right; he'd agree.
Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in \
May. How many clips did she sell?
Let x = 3 and y = 4. Then x + y = 7, x * y = 12, and x ** 2 + y ** 2 = 25, \
so the answer is \\boxed{25}. #### 25
def main(args):
    for i in range(10):
        print("Hello, world!", i)  # a comment
    return {"name": "value", "list": [1, 2, 3], "nested": {"a": null}}

int main(void)
{
\treturn 0;  /* tabs */
}

## Heading
# # another # one ##
Where is the capital of France? The capital of France is Paris. Wo liegt Köln? \
Das weiß ich nicht: über Straße und Bäume.
Le garçon a mangé une crème brûlée à l'hôtel. ¿Dónde está el niño? São Paulo, coração, ação.
Привет, как дела? Москва — столица России. Ελλάδα, Αθήνα. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया। \
สวัสดีชาวโลก
今天天气很好。我们去公园吧。日本語のテキスト、ひらがなとカタカナ。안녕하세요 세계. 😀 😀 👍 🎉 ❤️
1234567890 3.14159 2,718 100% $5.00 €20 2024-01-31 12:34:56 1/2 ½ ² Ⅷ
"""

# Every tokenizer reads each of these texts.
# fmt: off
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r", "\r\n", "\r\n\r\n", "\t", "\t\t \t", " \n", "\n ",
    " \n ", "  \n\n  x", "a", " a", "a ", "  a  b  ",
    "Hello, world!", "Hello world", " Hello", "hello  world", "hello   world", "hello\nworld",
    "hello \n world", "hello\n\n\n world\n",
    "a\r\nb\r\n\r\nc\rd", "x \r\n y", "line one\n  line two\n\tline three\n", "trailing spaces   ",
    "trailing newline\n", "\n leading", "a\u000bb\u000cc",
    "I'm you're he's we've I'd they'll don't", "I'M YOU'RE HE'S WE'VE I'D THEY'LL DON'T",
    "it'\u017f long s", "'\u017f", "'s", "'S", " 's", "''s", "'st", "'re'll", "o'clock 'tis",
    "\u2019s curly it\u2019s", "'\u212aelvin", "\u212a \u212b \u2126", "\u0130stanbul \u0131",
    "ß ẞ ﬁ ﬂ ŉ", "ǅ ǈ ǲ titlecase",
    "0", "12", "123", "1234", "12345", "123456", "1234567", " 1234567", "a1b22c333d4444", "3.14159",
    "1,000,000", "½⅓² ³ⅧⅫ①⑳", "٠١٢٣٤٥٦٧٨٩", "０１２３", "१२३", "𝟘𝟙𝟚 𝟏𝟐", "1st 2nd", "x²+y²", "٣.١٤",
    "൧൨൩", "〇一二三", "௰௱", "5⃣",
    "!", "!!", "!!!\n", " !?\n\n", "...\r\n", "a.b.c", "(a)[b]{c}<d>", "<<<>>>", "-- --- —–", "#",
    "##", "# #", "## ##", "####", "# # #", "\\boxed{25}", "$$x$$", "a_b_c __init__", "@user #tag",
    "100%", "©®™", "§¶†‡", "«quoted»", "“quoted”", "¿qué?", "a/b\\c|d", "e^{i\\pi}+1=0", "~`^",
    "=>", "!=", ":=", "//", "/* */", "<!-- -->",
    "café", "cafe\u0301", "e\u0301", "E\u0301\u0300", "a\u0300\u0301\u0302", "\u0301", " \u0301",
    "\u0301\u0301a", "x\u0301", "A\u030a", "\u00c5", "\u212b", "o\u0302\u0323", "o\u0323\u0302",
    "\u1ed9", "\u0344", "\u0340", "\u0958", "\u0915\u093c", "\u1100\u1161", "\u1100\u1161\u11a8",
    "\uac00\u11a8", "각 각", "가각힣", "\u2adc", "\ufb1d", "\u1fee", "q\u0307\u0323", "q\u0323\u0307",
    "\u1e0b\u0323", "a\u0345\u0301", "\u0f71\u0f72", "ſ\u0307", "か\u3099", "は\u309a",
    "\u1161\u1100", "n\u0303o", "\u0041\u0327\u0301", "1\u0301", ".\u0301", "\n\u0301", "\u0301\n",
    "abc\u0301def\u0308ghi", "\u05e9\u05c1\u05b0", "\u0928\u093c", "\U0001d15e", "\U0001109a",
    "\U00011131\U00011127",
    "😀", "😀😀", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "❤️", "❤\ufe0f\u200d🔥", "🇫🇷🇩🇪",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "a😀b", " 😀 ", "☺︎", "1️⃣",
    "🫨 🪿 🫩",
    "\u00a0", "a\u00a0b", "\u00a0\u00a0x", "\u1680", "\u180e", "a\u180eb", " \u180e x",
    "\u180e\u180e", "\u2000\u2001\u2002\u2003", "\u2004\u2005\u2006\u2007\u2008\u2009\u200a",
    "\u200b", "a\u200bb", "\u200c\u200d", "\u2028", "\u2029", "a\u2028b\u2029c", "x\u2028\n y",
    "\u202f", "\u205f", "\u3000", "a\u3000b", "\u3000\u3000あ", "\ufeff", "\ufeffHello", "\u0085",
    "a\u0085b", "\u00ad soft", "\u2060", "\u202a\u202e", "\u061c", " \u00a0 \t\u2003x",
    "\u001c\u001d\u001e\u001f", "a\u001cb",
    "\u0000", "a\u0000b", "\u0000\u0000", "\u0001\u0002\u007f", "\u0080\u009f", "\ufffd",
    "a\ufffdb", "\ufffd\ufffd", "\ufffe\uffff", "\U0010ffff", "\ue000\uf8ff", "\U000f0000",
    "\u0378", "\U0001f8ff", "\ud7ff",
    "日本語", "今天天气很好", "今天 天气", "ひらがなカタカナ漢字", "안녕하세요", "안녕하세요 세계", "สวัสดี", "नमस्ते", "مرحبا",
    "שלום", "Привет, мир!", "Ελληνικά", "Հայերեն", "ქართული", "ትግርኛ", "ᏣᎳᎩ", "𝕳𝖊𝖑𝖑𝖔", "ｆｕｌｌ ｗｉｄｔｈ",
    "ﾊﾝｶｸ ｶﾞ", "ﷺ", "㍿ ㌀", "Ǆ", "𐍈𐌰", "𓀀𓁐", "mixed日本and한글 и русский", "ⓐⓑ ⅰⅱ", "ʰʷ ˈa", "ªº", "ـ",
    "々〆ヽ", "𠀀𪜶", "\U00031350", "\U0001e030",
    "def f(x):\n    return x  # done\n", "for (int i = 0; i < n; i++) {\n\ta[i] += 1;\n}\n",
    "{\"a\": [1, 2.5, null], \"b\": \"\\u00e9\"}", "https://example.com/a?b=c&d=%20#e",
    "user@example.com", "C:\\Users\\x", "2024-01-31T12:34:56.789Z",
    "<think>3+6+0=9 2+5+0=7</think>\\boxed{579}", "| a | b |\n|---|---|\n",
    "- item\n  - sub\n    - subsub\n", "a" * 300, "ab" * 120, "é" * 50, "e\u0301" * 40, " " * 70,
    "\n" * 33, "\t" * 20, "1" * 41, "!" * 60, "日" * 30, "a b " * 30, "=" * 40 + "\n",
    "Supercalifragilisticexpialidocious" * 3, "\u0301" * 30, "\U0001f600" * 10,
    "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", " <|im_end|> ",
    "<|im_end|><|im_end|>", "<|im_end", "|im_end|>", "<|im_<|im_end|>end|>", "a<|im_start|>b",
    "<|IM_END|>", "\n<|im_end|>\n", "e<|im_end|>\u0301", "<|im_end|>\u0301",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<s>[INST] hi [/INST]</s>", "'<|im_end|>s",
]
# fmt: on

# The tokenizer with added tokens reads these too.
# fmt: off
ADDED_TEXTS = [
    "<sp>", "a<sp>b", " <sp> ", "<sp><sp>", "<sp", "<<sp>>", "<l>", "a <l> b", "a  \n\t<l>b",
    "   <l>", "<l>   ", "a<l><l> <l>b", "<r>", "a <r> b", "a<r>  \n\tb", "<r>   ", "a<r><r> <r>b",
    "<lr>", "a  <lr>  b", "a\u00a0<lr>\u3000b", "a\u180e<lr>\u180eb", "a\u200b<lr>\u200bb",
    "a\u0085<lr>\u0085b", "a\u001c<lr>\u001cb", "a\u2028<lr>\u2029b", " <l> <r> <lr> ", "<r> <l>",
    "<r>  <l>", "<lr> <lr>", "<r>\n\n<sp>", "<sp>\n\n<l>",
    "word", "words", "a word b", "word,word", "sword", "word1", "word_", "_word", "-word-",
    "(word)", "1word", "wordé", "éword", "word\u0301", "\u0301word", "word日", "日word", "word word",
    "wordword", "word wordword word", "word²", "²word", "word\u200d", "word\u200dx", "word_word",
    "wordⓐ", "Word", "word's", "<sp>word<sp>", "word<sp>", "wordab", "abword", "word\u0660",
    "\u203fword", "word\ufe0f",
    "ab", "abc", "bc", "abcd", "aab", "aabc", "ababc", "abcabc", "abbc", "xabcx", "ab c", "a b",
    "abé", "<a>", "<a><b>", "<a><b><a>", "<a> <b>", "<b>", "<a<a>", "<a><a><b>", "<a><",
    "é", "e\u0301", "xéy", "xe\u0301y", "éé", "e\u0301e\u0301", "E\u0301", "éclair", "e\u0301clair",
    "un éclair ici", "éclairs", "<n>", "<\u006e\u0303>", "<ñ>", "<n\u0303>", "a<ñ>b", "a<n\u0303>b",
    "<ñ><n\u0303>", "naïve", "nai\u0308ve", "\u00c5", "A\u030a", "\u212b", "x\u212by", "raw\u212b",
    "raw\u00c5", "rawA\u030a", "가", "\u1100\u1161", "각", "가\u11a8",
    " lead", "x lead", "xlead", "  lead", "lead", "trail ", "trail x", "trailx", "trail  x",
    "a   b", "a    b", "a     b", "a      b", "   ", "      ", "\n\n", "a\n\nb", "a\n\n\nb",
    "\n\n\n\n", "a.*b", "a.b", "[x]+", "x+", "(?:", "\\d", "a\\db", "a1b", "$^", "the", " the",
    "the the", "there", "🙂", "a🙂b", "🙂🙂", "日本", "日本語", "x日本y", "<NUL\u0000>", "a<NUL\u0000>b",
    "<NUL>",
    "one<lr>  word  <l>two", "  <l>word  ", "word  <lr>", "<lr>word", "<lr> word", "sw word<lr>x",
    "S", "xS", "S S", " S ", "aS b", "S.", "a Sb", "S<sp>S", " S<r> S",
]
# fmt: on

ADDED = [
    AddedToken("<sp>", special=True, normalized=False),
    AddedToken("<l>", lstrip=True, special=False, normalized=False),
    AddedToken("<r>", rstrip=True, special=False, normalized=False),
    AddedToken("<lr>", lstrip=True, rstrip=True, special=True, normalized=False),
    AddedToken("word", single_word=True, special=False, normalized=False),
    AddedToken("S", single_word=True, lstrip=True, rstrip=True, special=False, normalized=False),
    AddedToken("ab", special=False, normalized=False),
    AddedToken("abc", special=False, normalized=False),
    AddedToken("bc", special=False, normalized=False),
    AddedToken("<a>", special=True, normalized=False),
    AddedToken("<a><b>", special=False, normalized=False),
    AddedToken("é", special=False, normalized=True),
    AddedToken("éclair", special=False, normalized=False),
    AddedToken("<n\u0303>", special=False, normalized=True),
    AddedToken("nai\u0308ve", special=False, normalized=False),
    AddedToken("raw\u212b", special=False, normalized=False),
    AddedToken("가", special=False, normalized=True),
    AddedToken(" lead", special=False, normalized=False),
    AddedToken("trail ", special=False, normalized=True),
    AddedToken("   ", special=False, normalized=False),
    AddedToken("     ", special=False, normalized=True),
    AddedToken("\n\n", special=False, normalized=False),
    AddedToken(".*", special=False, normalized=True),
    AddedToken("[x]+", special=False, normalized=False),
    AddedToken("(?:", special=True, normalized=True),
    AddedToken("\\d", special=False, normalized=False),
    AddedToken("$^", special=False, normalized=True),
    AddedToken("the", special=False, normalized=True),
    AddedToken("🙂", special=False, normalized=False),
    AddedToken("日本", single_word=True, special=False, normalized=True),
    AddedToken("<NUL\u0000>", special=False, normalized=False),
]


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**({"add_prefix_space": False, "use_regex": False} | options))


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def trained(pre_tokenizer, size, normalizer=None, added=(), alphabet=None, prefix=()):
    """prefix: tokens that come first in the vocabulary, as SmolLM2's special tokens do."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    t.train_from_iterator(
        CORPUS.split("\n\n") * 3,
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            initial_alphabet=sorted(alphabet),
            special_tokens=list(prefix),
            show_progress=False,
        ),
    )
    for token in added:
        special = not isinstance(token, AddedToken) or token.special
        token = (
            AddedToken(token, special=True, normalized=False) if isinstance(token, str) else token
        )
        (t.add_special_tokens if special else t.add_tokens)([token])
    return t


def save(name, t, config, edit=None):
    path = ROOT / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    raw = json.loads(t.to_str())
    if edit:
        edit(raw)
    (path / "tokenizer.json").write_text(
        json.dumps(raw, ensure_ascii=False, indent=None, separators=(",", ":")).replace(
            ',"', ',\n"', 8
        )
        + "\n"
    )
    (path / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    )
    return Tokenizer.from_file(str(path / "tokenizer.json"))


def string_merges(raw):
    raw["model"]["merges"] = [" ".join(m) for m in raw["model"]["merges"]]


def whole_words(raw):
    """Adds words to the vocabulary that no merge makes: only ignore_merges finds them."""
    raw["model"]["ignore_merges"] = True
    vocab = raw["model"]["vocab"]
    shift = [
        "Ġcapital",
        "Paris",
        "lazyĠdog",
        "12345",
        "999",
        "ĠĠĠĠĠĠĠ",
        "zqzq",
        "ĠPar",
        "ï»¿Hello",
        "Ã©",
    ]
    new = [w for w in shift if w not in vocab]
    for token in raw["added_tokens"]:
        token["id"] += len(new)
    first = len(vocab)
    for i, w in enumerate(new):
        vocab[w] = first + i


def with_files(name, t, config):
    """Saves vocab.json and merges.txt, the form in which Qwen2 and GPT-2 were published.

    transformers' reading of them gives the cases.
    """
    path = ROOT / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    raw = json.loads(t.to_str())["model"]
    (path / "vocab.json").write_text(
        json.dumps(raw["vocab"], ensure_ascii=False, separators=(",", ":")) + "\n"
    )
    (path / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in raw["merges"])
    )
    (path / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    )
    return transformers.AutoTokenizer.from_pretrained(path).backend_tokenizer


def added_decoder(tokens, first):
    flags = dict(lstrip=False, rstrip=False, single_word=False, normalized=False, special=True)
    return {str(first + i): dict(content=t, **flags) for i, t in enumerate(tokens)}


def build():
    """Trains and saves all small tokenizers: name -> tokenizer."""
    gpt2 = byte_level(use_regex=True)
    out = {}

    t = trained(gpt2, 700, added=["<|endoftext|>"])
    t.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False)
    out["gpt2"] = save(
        "gpt2",
        t,
        dict(
            tokenizer_class="GPT2Tokenizer",
            bos_token="<|endoftext|>",
            eos_token="<|endoftext|>",
            unk_token="<|endoftext|>",
            add_prefix_space=False,
        ),
        string_merges,
    )

    t = trained(byte_level(use_regex=True, add_prefix_space=True), 600, added=CHATML)
    t.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=True)
    out["gpt2_prefix_trim"] = save(
        "gpt2_prefix_trim",
        t,
        dict(
            tokenizer_class="PreTrainedTokenizerFast",
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
        ),
    )

    t = trained(
        pre_tokenizers.Sequence([split(QWEN2), byte_level(trim_offsets=False)]),
        900,
        normalizers.NFC(),
        CHATML,
    )
    t.post_processor = processors.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False
    )
    out["qwen2"] = save(
        "qwen2",
        t,
        dict(
            tokenizer_class="Qwen2Tokenizer",
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            bos_token=None,
        ),
        string_merges,
    )

    header = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ]
    t = trained(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), 900, added=header)

    def llama3(raw):
        whole_words(raw)
        bos = next(a["id"] for a in raw["added_tokens"] if a["content"] == "<|begin_of_text|>")
        raw["post_processor"] = {
            "type": "Sequence",
            "processors": [
                {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": False,
                    "use_regex": True,
                },
                {
                    "type": "TemplateProcessing",
                    "single": [
                        {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                    ],
                    "pair": [
                        {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 1}},
                        {"Sequence": {"id": "B", "type_id": 1}},
                    ],
                    "special_tokens": {
                        "<|begin_of_text|>": {
                            "id": "<|begin_of_text|>",
                            "ids": [bos],
                            "tokens": ["<|begin_of_text|>"],
                        }
                    },
                },
            ],
        }

    out["llama3"] = save(
        "llama3",
        t,
        dict(
            tokenizer_class="PreTrainedTokenizerFast",
            bos_token="<|begin_of_text|>",
            eos_token="<|eot_id|>",
        ),
        llama3,
    )

    digits = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)]
    )
    t = trained(digits, 800, prefix=CHATML + ["<repo_name>", "<file_sep>"])
    out["smollm2_style"] = save(
        "smollm2_style",
        t,
        dict(
            tokenizer_class="GPT2Tokenizer",
            bos_token="<|im_start|>",
            eos_token="<|im_end|>",
            pad_token="<|im_end|>",
            unk_token="<|endoftext|>",
        ),
        string_merges,
    )

    t = trained(
        pre_tokenizers.Sequence([split(QWEN2), byte_level()]), 500, normalizers.NFC(), ADDED
    )
    out["added"] = save(
        "added", t, dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<sp>")
    )

    t = trained(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=False), byte_level(use_regex=True)]
        ),
        400,
        None,
        ["<s>", "</s>"],
    )
    ids = [(s, t.token_to_id(s)) for s in ("<s>", "</s>")]
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=ids
    )
    out["bos_eos"] = save(
        "bos_eos",
        t,
        dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>"),
    )

    # Splits three times, as DeepSeek's tokenizer does.
    cjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
    rest = (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    t = trained(
        pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split(cjk), split(rest), byte_level()]),
        800,
        normalizers.Sequence([]),
        CHATML,
    )
    out["split_thrice"] = save(
        "split_thrice", t, dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|im_end|>")
    )

    # An alphabet with holes: bytes without a token are lost.
    holes = [c for c in pre_tokenizers.ByteLevel.alphabet() if c not in "zQ{~ÃÄ¢"]
    t = trained(gpt2, 330, alphabet=holes, added=["<|endoftext|>"])

    def punch(raw):
        vocab, m = raw["model"]["vocab"], raw["model"]
        dead = {w for w in vocab if set(w) & set("zQ{~ÃÄ¢")}
        m["merges"] = [p for p in m["merges"] if not dead & {p[0], p[1], p[0] + p[1]}]
        m["vocab"] = {w: i for w, i in vocab.items() if w not in dead}

    out["holes"] = save(
        "holes",
        t,
        dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>"),
        punch,
    )

    t = trained(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), 700, normalizers.NFC())
    n = t.get_vocab_size()
    out["qwen2_files"] = with_files(
        "qwen2_files",
        t,
        dict(
            tokenizer_class="Qwen2Tokenizer",
            added_tokens_decoder=added_decoder(CHATML, n),
            bos_token=None,
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            unk_token=None,
            add_prefix_space=False,
            errors="replace",
            split_special_tokens=False,
        ),
    )
    t = trained(gpt2, 620)
    n = t.get_vocab_size()
    out["gpt2_files"] = with_files(
        "gpt2_files",
        t,
        dict(
            tokenizer_class="GPT2Tokenizer",
            added_tokens_decoder=added_decoder(["<|endoftext|>"], n),
            bos_token="<|endoftext|>",
            eos_token="<|endoftext|>",
            unk_token="<|endoftext|>",
            add_prefix_space=False,
        ),
    )
    return out


PIECES = ["gemma_small", "llama2_small", "mistral_small"]
PIECE_TEXTS = [
    "▁", "▁▁", "▁a", " ▁a", "▁ a", "a▁b", "a ▁ b", "<0x41>", "<0xE4>x", "<0x", "日本語", "日 本",
    "a日b", "é日é", "e\u0301", "\u200b", "\ufeffa", "<s>", "<s>a", "<s> a", "a<s>b </s> c", " <s> ",
    "<bos><start_of_turn>user\nHi there<end_of_turn>\n<start_of_turn>model\n", "x<unk>y", "<unk>",
    "<s>[INST] Hi [/INST] Hello</s>[INST] again [/INST]", "\n\n\n\n\n", "a\n\n\nb", "      x", "\0\x01",
    "😀😀 日😀", "▁the▁number", "the number of the hours", "▁▁▁▁ ▁▁ ", " \n ▁", "a  b   c    d     e",
]  # fmt: skip


def pieces():
    """The SentencePiece-style tokenizers, and one in which much is missing."""
    out = {n: Tokenizer.from_file(str(ROOT / n / "tokenizer.json")) for n in PIECES}

    def punch(raw):
        m = raw["model"]
        for lost in ("<0xE6>", "<0xF0>", "<0xCC>", "<0x00>"):
            del m["vocab"][lost]
        m["fuse_unk"] = False
        raw["normalizer"] = {"type": "NFC"}
        raw["pre_tokenizer"] = {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "always",
            "split": True,
        }
        raw["decoder"]["decoders"][-1]["start"] = 2

    out["pieces_holes"] = save(
        "pieces_holes",
        out["llama2_small"],
        dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", unk_token="<unk>"),
        punch,
    )
    return out


def assigned(rng):
    while True:
        c = rng.choice(
            [
                rng.randrange(0x20, 0x7F),
                rng.randrange(0xA0, 0x600),
                rng.randrange(0x600, 0x3100),
                rng.randrange(0x3100, 0x10000),
                rng.randrange(0x10000, 0x1FB00),
            ]
        )
        if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co"):
            return chr(c)


def fuzz(rng, n):
    """Random texts of four kinds.

    Any characters of Unicode; letters, marks and spaces that are hard to normalise; words of
    CORPUS; pieces of TEXTS.
    """
    spaces = " \t\n\r\u00a0\u2003\u3000\u0085\u2028\u180e\u200b"
    marks = "\u0300\u0301\u0308\u0323\u0327\u0338\u0345\u05b0\u064b\u093c\u0e38\u302a\u3099\u20dd"
    bases = "aeionAEIOUlscC'’0123.,!-_<>|\u017fßåéかは가힣\u1100\u1161\u11a8ªⅧ²"
    out = []
    for i in range(n):
        kind = i % 4
        if kind == 0:
            text = "".join(assigned(rng) for _ in range(rng.randrange(1, 24)))
        elif kind == 1:
            text = "".join(
                rng.choice([rng.choice(bases), rng.choice(marks), rng.choice(spaces)])
                for _ in range(rng.randrange(1, 40))
            )
        elif kind == 2:
            words = CORPUS.split(" ")
            text = rng.choice(["", " "]).join(
                rng.choice(words) for _ in range(rng.randrange(1, 12))
            )
        else:
            text = "".join(rng.choice(TEXTS)[:20] for _ in range(rng.randrange(2, 7)))
        out.append(text)
    return out


def encode(t, text):
    e = t.encode(text, add_special_tokens=False)
    case = {"text": text, "ids": e.ids, "offsets": [list(o) for o in e.offsets]}
    s = t.encode(text, add_special_tokens=True)
    if s.ids != e.ids:
        case |= {"ids_special": s.ids, "offsets_special": [list(o) for o in s.offsets]}
    return case | decode(t, s.ids)


def decode(t, ids):
    return {
        "decoded": t.decode(ids, skip_special_tokens=False),
        "decoded_skip": t.decode(ids, skip_special_tokens=True),
    }


def random_ids(t, rng, n):
    """Ids in an order that no text gives: cut characters, ids outside the vocabulary."""
    size = max(t.get_vocab(with_added_tokens=True).values()) + 1
    out = [[], [size], [size + 1000], [0], [size - 1, size, size - 1]]
    for _ in range(n):
        out.append(
            [
                rng.randrange(size if rng.random() < 0.95 else size + 50)
                if rng.random() < 0.6
                else rng.randrange(min(size, 300))
                for _ in range(rng.randrange(1, 24))
            ]
        )
    return out


def write(name, t, where, texts, rng, fuzzed, metadata):
    cases = [encode(t, x) for x in texts + fuzz(rng, fuzzed)]
    ids = [{"ids": i} | decode(t, i) for i in random_ids(t, rng, 40)]
    text = json.dumps(
        {"metadata": metadata, "tokenizer": where, "cases": "@", "decode_cases": "#"}, indent=1
    )
    lines = lambda xs: "[\n  " + ",\n  ".join(json.dumps(x) for x in xs) + "\n ]"
    text = text.replace('"decode_cases": "#"', '"decode_cases": ' + lines(ids)).replace(
        '"cases": "@"', '"cases": ' + lines(cases), 1
    )
    (ROOT / (name + ".json")).write_text(text + "\n")
    print(
        "%-17s %4d cases, %3d of decoding only, %4d kB, vocabulary %d"
        % (name, len(cases), len(ids), len(text) // 1024, t.get_vocab_size())
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--qwen2", type=pathlib.Path, metavar="DIR", help="Qwen2's tokenizer")
    parser.add_argument("--pieces", action="store_true", help="SentencePiece-style ones alone")
    args = parser.parse_args()
    ROOT.mkdir(parents=True, exist_ok=True)
    metadata = {
        "command": "python scripts/golden/tokenizer.py",
        "seed": SEED,
        "tokenizers": tokenizers.__version__,
        "transformers": transformers.__version__,
    }
    for name, t in pieces().items():
        where = "tests/golden/tokenizer/" + name
        rng = random.Random("%d %s" % (SEED, name))
        file = name.replace("_small", "_texts")
        write(file, t, where, TEXTS + PIECE_TEXTS, rng, 20, metadata)
    if args.pieces:
        return
    for name, t in build().items():
        texts = TEXTS + (ADDED_TEXTS if name == "added" else [])
        write(
            name,
            t,
            "tests/golden/tokenizer/" + name,
            texts,
            random.Random("%d %s" % (SEED, name)),
            160 if name == "added" else 80,
            metadata,
        )
    for name, where in REAL.items():
        folder = args.qwen2 if args.qwen2 and name == "qwen2_real" else REPO / where
        if not folder.is_dir():
            print("%-17s left as it is: no %s" % (name, folder))
            continue
        t = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
        write(name, t, where, TEXTS, random.Random("%d %s" % (SEED, name)), 300, metadata)


main()
